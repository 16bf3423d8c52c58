package segment

import (
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/latency"
)

// quietTime is the pause before a tag that the store refused is loaded again without a waiting request.
const quietTime = time.Second

// A loader records the loads of one tag. At most one is under way.
type loader struct {
	running    bool  // a goroutine loads, or is about to
	loads      int64 // loads that succeeded
	errs       int64 // loads that failed
	fails      int   // failed loads in a row
	slowest    latency.Slowest
	quietUntil time.Duration // no load before then unless a request waits
	lastErr    error         // error of the last load, if a retry may succeed
	retry      *jitter.Backoff
}

// succeeded records a load and its duration.
func (l *loader) succeeded(took time.Duration) {
	l.loads++
	l.fails, l.retry, l.quietUntil, l.lastErr = 0, nil, 0, nil
	l.slowest.Note(took)
}

// failed records a load that may succeed when retried, and returns the pause before the retry.
func (l *loader) failed(err error) (pause time.Duration) {
	l.lastErr = err
	l.errs++
	l.fails++
	if l.retry == nil {
		l.retry = jitter.NewBackoff(10*time.Millisecond, 250*time.Millisecond)
	}
	return l.retry.NextBackOff()
}

// refused records that the store does not serve the tag.
func (l *loader) refused(now time.Duration) {
	l.errs++
	l.fails, l.retry, l.quietUntil, l.lastErr = 0, nil, now+quietTime, nil
}

// outdated records that the store refused the tag in a load that began before the tag was changed.
func (l *loader) outdated() {
	l.errs++
	l.lastErr = nil
}

// wake ends the quiet time.
func (l *loader) wake() { l.quietUntil = 0 }

// quiet reports whether no load begins unless a request waits.
func (l *loader) quiet(now time.Duration) bool { return now < l.quietUntil }

// failing reports whether loads fail again and again. One that failed is tried again first: where this process stood
// still for longer than a load may take, the load's timeout and its answer come at the same moment.
func (l *loader) failing() bool { return l.fails > 1 }

// notLoaded returns [ErrNotLoaded] with the cause, if there is one.
func (l *loader) notLoaded() error {
	if l.lastErr == nil {
		return ErrNotLoaded
	}
	return fmt.Errorf("%w: %w", ErrNotLoaded, l.lastErr)
}
