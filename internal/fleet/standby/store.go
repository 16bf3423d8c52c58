package standby

import (
	"sync"
	"time"

	"github.com/natsid/natsid/internal/latency"
)

// outcomes are those of this worker's loads and probes.
type outcomes struct {
	doubted chan struct{} // has room for one word that loads are in doubt
	wrote   chan struct{} // has room for one word that a write has succeeded, or that nothing speaks against the store
	// suspected has room for one word that what is under way may never end, as where a connection was lost.
	suspected chan struct{}

	slowest latency.Slowest // write that succeeded

	mu      sync.Mutex
	ended   time.Time // when the last write ended that succeeded
	began   time.Time // the latest begin of one that succeeded
	count   uint64    // writes that succeeded
	isDoubt bool      // a load failed or hangs, and no write has succeeded since
	unable  error     // of the last probe, unless a write has succeeded since
}

func newOutcomes() outcomes {
	return outcomes{
		doubted: make(chan struct{}, 1), wrote: make(chan struct{}, 1), suspected: make(chan struct{}, 1),
	}
}

// load notes the begin of a load.
func (s *outcomes) load() (ended func(err error, silent bool)) {
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
			s.succeeded(began)
		default:
			s.failed(began)
		}
	}
}

// succeeded notes that a write succeeded.
func (s *outcomes) succeeded(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = time.Now()
	if began.After(s.began) {
		s.began = began
	}
	s.count++
	s.slowest.Note(s.ended.Sub(began))
	s.sound()
}

// reassured ends a doubt, though nothing was written.
func (s *outcomes) reassured() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sound()
}

// sound ends a doubt. The lock is held.
func (s *outcomes) sound() {
	if s.isDoubt {
		s.isDoubt, s.unable = false, nil
		signal(s.wrote)
	}
}

// failed notes a load that failed. It is no doubt if a write has succeeded since it began.
func (s *outcomes) failed(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.Before(began) {
		s.doubt()
	}
}

// hangs notes that a load takes unusually long. It is no doubt while other writes succeed.
func (s *outcomes) hangs() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.ended) >= s.patience() {
		s.doubt()
	}
}

func (s *outcomes) suspect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubt()
	signal(s.suspected)
}

// doubt begins a doubt. The lock is held.
func (s *outcomes) doubt() {
	if !s.isDoubt {
		s.isDoubt = true
		select {
		case <-s.wrote: // of the doubt before
		default:
		}
	}
	signal(s.doubted)
}

// isUnable notes why the store cannot be written, unless a write has succeeded since there were so many.
func (s *outcomes) isUnable(why error, writes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == writes && s.isDoubt {
		s.unable = why
	}
}

// whyUnable returns why the store cannot be written, nil if it can or that is not known.
func (s *outcomes) whyUnable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unable
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// patience is how long a write may take.
func (s *outcomes) patience() time.Duration { return max(leastPatience, 3*s.slowest.Get()) }

func (s *outcomes) isDoubted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isDoubt
}

// writes returns how many writes have succeeded.
func (s *outcomes) writes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// sinceWrite returns how long ago the last write succeeded.
func (s *outcomes) sinceWrite() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.ended)
}

// provedSince reports whether a write began at t or later, and succeeded.
func (s *outcomes) provedSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.began.Before(t)
}
