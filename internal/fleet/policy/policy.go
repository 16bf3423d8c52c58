// Package policy decides how many IDs of a tag callers may have; it is internal to natsid and may change.
//
// It applies the limits in the entry of each tag, and the throttle in the identity of the registry, which holds for
// each tag.
//
// It handles no IDs: a request is refused before it draws one. So a wrong decision, or a limit learned late, never
// makes an ID repeat.
package policy

import (
	"fmt"
	"time"
)

// A BatchError refuses a request for more IDs than the tag allows at once.
type BatchError struct {
	Max int
	// Rate is the rate from which Max follows, in IDs per second of all workers together; 0 if Max is the tag's largest
	// batch.
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
