package worker

import (
	"time"

	"github.com/natsid/natsid/internal/ratelimit"
	"github.com/natsid/natsid/subjects"
)

// FirstUses returns a function that uses one of so many new tags a minute, or returns an error for the caller: it
// bounds what strangers create by first use. A tag that an operator creates is not counted. The function is safe for
// concurrent use.
func FirstUses(perMinute int64) func() error {
	bucket, perSecond := ratelimit.New(time.Minute), float64(perMinute)/time.Minute.Seconds()
	return func() error {
		wait := bucket.Take(clock(), 1, perSecond)
		if wait == 0 {
			return nil
		}
		e := subjects.Errorf(subjects.TooMany,
			"this worker makes at most %d new tags a minute on first use", perMinute)
		e.RetryAfter = wholeMillis(wait)
		return e
	}
}

// wholeMillis returns the next time in whole milliseconds after d: replies have no finer one.
func wholeMillis(d time.Duration) time.Duration {
	return d.Truncate(time.Millisecond) + time.Millisecond
}
