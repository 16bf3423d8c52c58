package fleetview

import (
	"context"
	"sync"
	"time"
)

// A Shared is a value that is read on demand, once for all callers. It is safe for concurrent use.
type Shared[T any] struct {
	Now  func() time.Time
	Read func() (T, error)
	// A value is read again once it is older than Fresh, or than Share times the duration of the read if that is
	// longer: so reading takes at most 1/Share of a CPU. During a read, Get returns the old value, unless it is older
	// than Stale; 0 means no limit.
	Fresh, Stale time.Duration
	Share        int

	mu      sync.Mutex
	value   T
	err     error         // of the last attempt
	at      time.Time     // time of the value; zero if there is none
	next    time.Time     // when to read again
	reading chan struct{} // closed when the present attempt has ended; nil if there is none
}

// Get returns the last value, its time, and the error of the last attempt. It waits, until ctx ends, only if there is
// no value that may be returned.
func (s *Shared[T]) Get(ctx context.Context) (value T, at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if s.reading == nil && (!now.Before(s.next) || now.Before(s.at)) {
		s.reading = make(chan struct{})
		go s.reread(s.reading)
	}
	isOld := s.at.IsZero() || s.Stale > 0 && now.Sub(s.at) > s.Stale
	if reading := s.reading; isOld && reading != nil {
		s.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if s.mu.Lock(); err != nil {
			return value, at, err
		}
	}
	return s.value, s.at, s.err
}

func (s *Shared[T]) reread(done chan struct{}) {
	defer close(done)
	began := time.Now()
	value, err := s.Read()
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := s.Fresh // after an error, too: a failing read mostly waits, and computes little
	if s.err = err; err == nil {
		s.value, s.at = value, s.Now()
		pause = max(pause, time.Duration(s.Share)*time.Since(began))
	}
	s.next, s.reading = s.Now().Add(pause), nil
}
