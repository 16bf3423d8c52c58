// Package policy decides how many IDs of a tag callers may have; it is internal to natsid and may change.
//
// It applies the limits of the tag, and the throttle of each tag.
//
// It knows nothing of IDs. A request that it refuses has drawn no ID, so its decisions, and the time at which a
// worker learns of a setting, never make an ID repeat.
package policy

import (
	"fmt"
	"time"

	"github.com/natsid/natsid/subjects"
)

// A Limit is the limit of one tag. The zero value allows all.
type Limit struct {
	MaxBatch int   `json:"max_batch,omitempty"` // IDs a request can get; 0 is no limit
	Rate     int64 `json:"rate,omitempty"`      // IDs per second of all workers together; 0 is no limit
}

// Valid reports whether operators can have set the limit.
func (l Limit) Valid() bool { return l.MaxBatch >= 0 && l.Rate >= 0 && l.Rate <= subjects.MaxRate }

// Rules are the limits in force, by tag. The rate of the tag "", the throttle, holds for each tag.
type Rules map[string]Limit

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
	return fmt.Sprintf("this tag is limited to %d IDs a request: ask for fewer", e.Max)
}

// A RateError refuses a request since its tag has used up its rate for now.
type RateError struct {
	Rate int64 // IDs per second, of all workers together
	Wait time.Duration
}

func (e *RateError) Error() string {
	return fmt.Sprintf("this tag is limited to %d IDs/s: back off", e.Rate)
}
