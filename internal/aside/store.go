package aside

import (
	"sync"
	"time"
)

// A store is what the loads of this worker show of it.
type store struct {
	wake chan struct{}

	mu    sync.Mutex
	wrote time.Time     // when the last write ended that is known to have succeeded
	began time.Time     // the latest begin of one that succeeded
	usual time.Duration // how long the slowest of recent writes took
	doubt bool          // a load failed or hangs, and no write has succeeded since
}

// load notes the begin of a load.
func (s *store) load() (ended func(err error, silent bool)) {
	began := time.Now()
	var timer *time.Timer
	var mu sync.Mutex
	over := false
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			s.hangs()
			timer.Reset(s.patience())
		}
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(s.patience(), look)
	return func(err error, silent bool) {
		mu.Lock()
		over = true
		timer.Stop()
		mu.Unlock()
		switch {
		case silent:
		case err == nil:
			s.succeeded(time.Since(began))
		default:
			s.failed(began)
		}
	}
}

// succeeded notes a write that took so long. The slowest of recent ones fades by an eighth with each.
func (s *store) succeeded(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote, s.doubt = time.Now(), false
	if began := s.wrote.Add(-took); began.After(s.began) {
		s.began = began
	}
	s.usual = max(took, s.usual-s.usual/8)
}

// reassured ends a doubt, though nothing was written.
func (s *store) reassured() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubt = false
}

// failed notes a load that failed. It is no doubt if a write has succeeded since it began.
func (s *store) failed(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wrote.Before(began) {
		s.doubtLocked()
	}
}

// hangs notes that a load takes unusually long. It is no doubt while other writes succeed.
func (s *store) hangs() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.wrote) >= s.patienceLocked() {
		s.doubtLocked()
	}
}

func (s *store) suspect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubtLocked()
}

func (s *store) doubtLocked() {
	s.doubt = true
	s.signal()
}

func (s *store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// patience is how long a write may take.
func (s *store) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.patienceLocked()
}

func (s *store) patienceLocked() time.Duration { return max(leastPatience, 3*s.usual) }

func (s *store) isDoubted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doubt
}

// wroteSince reports whether a write ended well after t.
func (s *store) wroteSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrote.After(t)
}

// provedSince reports whether a write began at t or later, and ended well.
func (s *store) provedSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.began.Before(t)
}

// age returns how long before now the latest write began that ended well; 0 if it began after that.
func (s *store) age(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, now.Sub(s.began))
}
