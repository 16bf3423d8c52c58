package page

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A shared is a value that is read on demand, and once for all viewers. It is safe for concurrent use.
type shared[T any] struct {
	now  func() time.Time
	read func(context.Context) (T, error)

	mu      sync.Mutex
	value   T
	err     error         // of the last attempt
	at      time.Time     // time of the value; zero if there is none
	next    time.Time     // when to read again
	reading chan struct{} // closed when the present attempt has ended; nil if there is none
}

// A value is read again after sharedFor, or after sharedShare times the duration of the last read if that is longer: so
// many tags cost at most 1/sharedShare of a CPU. A failing read mostly waits, and computes little.
const (
	sharedFor    = 2 * time.Second
	sharedShare  = 20
	sharedWithin = 10 * time.Second // bounds an attempt to read
	sharedFirst  = 500 * time.Millisecond
)

// errLate is returned if the first read takes longer than sharedFirst: a view does not wait for all of its data.
var errLate = errors.New("reading takes a while; the result appears here when it is done")

// get returns the last value, its time, and the error of the last attempt. It waits only for the first value, up to
// sharedFirst.
func (s *shared[T]) get(ctx context.Context) (value T, at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading == nil && !s.now().Before(s.next) {
		s.reading = make(chan struct{})
		go s.reread(s.reading)
	}
	if reading := s.reading; s.at.IsZero() && reading != nil {
		s.mu.Unlock()
		select {
		case <-reading:
		case <-time.After(sharedFirst):
			err = errLate
		case <-ctx.Done():
			err = ctx.Err()
		}
		if s.mu.Lock(); err != nil {
			return value, at, err
		}
	}
	return s.value, s.at, s.err
}

func (s *shared[T]) reread(done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(context.Background(), sharedWithin)
	defer cancel()
	began := time.Now()
	value, err := s.read(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := sharedFor
	if s.err = err; err == nil {
		s.value, s.at = value, s.now()
		pause = max(pause, sharedShare*time.Since(began))
	}
	s.next, s.reading = s.now().Add(pause), nil
}
