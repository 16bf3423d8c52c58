package segment

import (
	"sync"
	"time"
)

// A health records how the last loads of any tags ended.
type health struct {
	mu       sync.Mutex
	last     error // of the last load that failed
	failures int   // in a row
	failed   time.Time
	released time.Time // when a hold ended: failures of loads that began before say nothing about the store
}

// note records the outcome of a load that began at that time. A store that refuses a tag works.
func (h *health) note(began time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil || IsFinal(err) {
		h.failures = 0
		return
	}
	if began.Before(h.released) {
		return
	}
	h.last, h.failed = err, time.Now()
	h.failures++
}

// release discards the failures so far, and ignores those of loads under way: they may have failed because of the
// hold.
func (h *health) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures, h.released = 0, time.Now()
}

// trouble returns the error of the last load if at least two in a row failed, the last one recently.
func (h *health) trouble() error {
	const recent = 10 * time.Second
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures < 2 || time.Since(h.failed) > recent {
		return nil
	}
	return h.last
}
