package segment

import (
	"log/slog"
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
	if err == nil || isFinal(err) {
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

// failureLines is how many failed loads per second are logged. All are counted; a caller that repeats requests for a
// tag that is used up, or thousands of tags whose store is away, would write a line per request.
const failureLines = 20

// A failureLog logs failed loads, failureLines per second at most.
type failureLog struct {
	log *slog.Logger

	mu     sync.Mutex
	second time.Duration
	lines  int // in this second
	silent int // failures since the last line that were not logged
}

func (f *failureLog) note(now time.Duration, p plan, err error) {
	silent, ok := f.line(now)
	if !ok {
		return
	}
	log := f.log
	if silent > 0 {
		log = log.With("silent", silent)
	}
	log.Warn("a load failed: the tag has only the IDs in memory until a load succeeds; see the error",
		"tag", p.tag, "ids", p.n, "error", err)
}

// line reports whether a failure is logged, and how many before it were not.
func (f *failureLog) line(now time.Duration) (silent int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := now.Truncate(time.Second); s != f.second {
		f.second, f.lines = s, 0
	}
	if f.lines == failureLines {
		f.silent++
		return 0, false
	}
	f.lines++
	silent, f.silent = f.silent, 0
	return silent, true
}
