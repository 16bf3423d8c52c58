package worker

import (
	"time"

	"github.com/natsid/natsid/internal/ratelimit"
	"github.com/natsid/natsid/subjects"
)

// FirstUses returns a function that allows perMinute new tags a minute. Beyond that it returns an error for the caller,
// an [subjects.Error]. It bounds the tags that strangers create by first use; an operator's do not count. The function
// is safe for concurrent use.
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

// wholeMillis returns d raised to the next whole millisecond above it: replies hold no fractions.
func wholeMillis(d time.Duration) time.Duration {
	return d.Truncate(time.Millisecond) + time.Millisecond
}
