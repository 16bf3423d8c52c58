// Package policy decides how many IDs of a tag callers may have; it is internal to natsid and may change.
//
// It applies the limits of the tag, which stand in its entry, and the throttle of each tag, which stands in the
// identity of the registry.
//
// It knows nothing of IDs. A request that it refuses has drawn no ID, so its decisions, and the time at which a
// worker learns of a limit, never make an ID repeat.
package policy

import (
	"fmt"
	"time"
)

// A BatchError refuses a request for more IDs than the tag allows at once.
type BatchError struct {
	Max int
	// Rate is the limit that makes Max so low, in IDs per second of all workers together; 0 if Max is a limit by
	// itself.
	Rate int64
}

func (e *BatchError) Error() string {
	if e.Rate > 0 {
		return fmt.Sprintf("this tag is limited to %d IDs/s, and one request to the IDs of %d s on one worker: "+
			"ask for at most %d IDs", e.Rate, int(longest.Seconds()), e.Max)
	}
	return fmt.Sprintf("this tag is limited to %d IDs a request", e.Max)
}

// A RateError refuses a request since its tag has used up its rate for now.
type RateError struct {
	Rate int64 // IDs per second, of all workers together
	Wait time.Duration
}

func (e *RateError) Error() string {
	return fmt.Sprintf("this tag is limited to %d IDs/s", e.Rate)
}
