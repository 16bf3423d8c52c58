package segment

import (
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/latency"
)

// quietTime is how long a tag that the store refused is not loaded while there are IDs for all requests.
const quietTime = time.Second

// A loader is what is known of the loads of one tag. At most one is under way.
type loader struct {
	running    bool          // a goroutine loads, or is about to
	loads      int64         // that succeeded
	errs       int64         // loads that failed
	fails      int           // in a row, less the first that was excused
	excused    bool          // since the last that succeeded, one gave way or the process stood still
	took       time.Duration // by the last load that succeeded
	slowest    latency.Slowest
	quietUntil time.Duration // no load before then unless a request waits
	lastErr    error         // of the last load, if another may succeed
	retry      *jitter.Backoff
}

// succeeded notes a load, and how long it took.
func (l *loader) succeeded(took time.Duration) {
	l.loads++
	l.fails, l.excused, l.retry, l.quietUntil, l.lastErr = 0, false, nil, 0, nil
	l.took = took
	l.slowest.Note(took)
}

// failed notes a load that may succeed when retried, and returns the pause before that.
func (l *loader) failed(err error) (pause time.Duration) {
	l.lastErr = err
	l.errs++
	if (errors.Is(err, errGaveWay) || errors.Is(err, errStoodStill)) && !l.excused {
		l.excused = true
	} else {
		l.fails++
	}
	if l.retry == nil {
		l.retry = jitter.NewBackoff(10*time.Millisecond, 250*time.Millisecond)
	}
	return l.retry.NextBackOff()
}

// refused notes that the store does not serve the tag.
func (l *loader) refused(now time.Duration) {
	l.errs++
	l.fails, l.excused, l.retry, l.quietUntil, l.lastErr = 0, false, nil, now+quietTime, nil
}

// outdated notes that the store refused the tag, but news of the tag arrived meanwhile.
func (l *loader) outdated() {
	l.errs++
	l.lastErr = nil
}

// wake ends the quiet time.
func (l *loader) wake() { l.quietUntil = 0 }

// quiet reports whether no load begins unless a request waits.
func (l *loader) quiet(now time.Duration) bool { return now < l.quietUntil }

// failing reports whether the last load failed, and another may succeed. One that was excused is not a failure
// yet.
func (l *loader) failing() bool { return l.fails > 0 }

// notLoaded returns [ErrNotLoaded] with the cause, if there is one.
func (l *loader) notLoaded() error {
	if l.lastErr == nil {
		return ErrNotLoaded
	}
	return fmt.Errorf("%w: %w", ErrNotLoaded, l.lastErr)
}
