package segment

import (
	"sync"
	"time"
)

// A health is how the last loads ended, of any tags.
type health struct {
	mu       sync.Mutex
	last     error // of the last load that failed
	failures int   // in a row
	failed   time.Time
}

// note notes the outcome of a load. A store that refuses a tag works.
func (h *health) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil || IsFinal(err) {
		h.failures = 0
		return
	}
	h.last, h.failed = err, time.Now()
	h.failures++
}

// trouble returns the error of the last load, if two in a row failed, and recently.
func (h *health) trouble() error {
	const recent = 10 * time.Second
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures < 2 || time.Since(h.failed) > recent {
		return nil
	}
	return h.last
}
