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
// many tags cost at most 1/sharedShare of a CPU. After a failure it is read sooner: a failing read mostly waits, and
// computes little. The value is dropped when nobody has looked at it for sharedKept.
const (
	sharedFor    = 2 * time.Second
	sharedShare  = 20
	sharedKept   = time.Minute
	sharedWithin = 10 * time.Second // bounds an attempt to read
	sharedFirst  = 500 * time.Millisecond
)

// errLate is returned if the first read takes longer than sharedFirst: a view does not wait for all of its data.
var errLate = errors.New("reading takes a while; the result appears here when it is done")

func share[T any](now func() time.Time, read func(context.Context) (T, error)) *shared[T] {
	return &shared[T]{now: now, read: read}
}

// get returns the last value, its time, and the error of the last attempt. It waits only for the first value, up to
// sharedFirst.
func (s *shared[T]) get(ctx context.Context) (value T, at time.Time, err error) {
	s.mu.Lock()
	if s.reading == nil && !s.now().Before(s.next) {
		s.reading = make(chan struct{})
		go s.reread(s.reading)
	}
	reading, wait := s.reading, s.at.IsZero() && s.reading != nil
	s.mu.Unlock()
	if wait {
		select {
		case <-reading:
		case <-time.After(sharedFirst):
			return value, at, errLate
		case <-ctx.Done():
			return value, at, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.at, s.err
}

func (s *shared[T]) reread(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), sharedWithin)
	defer cancel()
	began := time.Now()
	value, err := s.read(ctx)
	took := time.Since(began)
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := max(sharedFor, took)
	if s.err = err; err == nil {
		s.value, s.at = value, s.now()
		pause = max(sharedFor, sharedShare*took)
	}
	s.next = s.now().Add(pause)
	s.reading = nil
	close(done)
	next := s.next
	time.AfterFunc(sharedKept+pause, func() { s.drop(next) })
}

// drop drops the value, unless it was read again meanwhile.
func (s *shared[T]) drop(next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next.Equal(next) {
		var none T
		s.value, s.at, s.next = none, time.Time{}, time.Time{}
	}
}
