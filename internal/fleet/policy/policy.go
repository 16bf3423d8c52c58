// Package policy decides how many IDs of a tag callers may have; it is internal to natsid and may change.
//
// It applies the limits of the tag, which are permanent, and throttles, which operators set for a time.
//
// It knows nothing of IDs. A request that it refuses has drawn no ID, so its decisions, and the time at which a
// worker learns of a setting, never make an ID repeat.
package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// MaxThrottled is how many tags can have a throttle of their own.
	MaxThrottled = 1000
	// MaxRate is the highest rate that can be set, in IDs per second.
	MaxRate = 1_000_000_000_000
)

// A Limit is the limit of one tag. The zero value allows all.
type Limit struct {
	MaxBatch int   `json:"max_batch,omitempty"` // IDs a request can get; 0 is no limit
	Rate     int64 `json:"rate,omitempty"`      // IDs per second of all workers together; 0 is no limit
}

// A Throttle is a limit that an operator sets for a time: IDs per second of all workers together, per tag. 0 means no
// throttle.
type Throttle struct {
	All  int64            `json:"all,omitempty"`  // each tag
	Tags map[string]int64 `json:"tags,omitempty"` // some tags; the lower one counts
}

// Valid reports whether operators can have set the limit.
func (l Limit) Valid() bool { return l.MaxBatch >= 0 && l.Rate >= 0 && l.Rate <= MaxRate }

// Valid reports whether operators can have set the throttle.
func (t Throttle) Valid() bool {
	for _, rate := range t.Tags {
		if rate < 1 || rate > MaxRate {
			return false
		}
	}
	return t.All >= 0 && t.All <= MaxRate
}

// IsZero reports whether nothing is throttled.
func (t Throttle) IsZero() bool { return t.All == 0 && len(t.Tags) == 0 }

// Of returns the throttle of a tag.
func (t Throttle) Of(tag string) int64 { return lower(t.All, t.Tags[tag]) }

// String describes the throttle for people; "" if nothing is throttled.
func (t Throttle) String() string {
	var all []string
	if t.All > 0 {
		all = append(all, fmt.Sprintf("each tag to %d IDs/s", t.All))
	}
	const few = 10
	for i, tag := range slices.Sorted(maps.Keys(t.Tags)) {
		if i == few {
			all = append(all, fmt.Sprintf("%d more tags", len(t.Tags)-few))
			break
		}
		all = append(all, fmt.Sprintf("%s to %d IDs/s", tag, t.Tags[tag]))
	}
	return strings.Join(all, ", ")
}

// Rules are all settings in force.
type Rules struct {
	Limits   map[string]Limit // by tag
	Throttle Throttle
}

// lower returns the lower of two limits, of which 0 means no limit.
func lower(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

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
	Rate      int64 // IDs per second, of all workers together
	Throttled bool  // by an operator, for a time
	Wait      time.Duration
}

func (e *RateError) Error() string {
	if e.Throttled {
		return fmt.Sprintf("this tag is throttled to %d IDs/s for the time being: back off", e.Rate)
	}
	return fmt.Sprintf("this tag is limited to %d IDs/s: back off", e.Rate)
}
