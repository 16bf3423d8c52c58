package subjects

import (
	"math"
	"strconv"
	"time"
)

// MaxBusiest is how many tags a worker tells of by itself, the busiest first;
// of the others it tells page by page, see [TagList].
const MaxBusiest = 20

// MaxRanges is how many ranges [TagStats] shows at most. More than two are
// loaded only where the store is slow.
const MaxRanges = 8

// WorkerStats is what one worker tells of all its tags together and of the
// busiest. It is the data of the endpoint segment in the reply to
// $SRV.STATS.<namespace>-segment. Counts are of the tags that are in the
// worker's memory, since they came there.
type WorkerStats struct {
	Instance     string     `json:"instance"` // the worker's name
	Number       *int       `json:"number"`   // its worker number; null while it has none
	At           time.Time  `json:"at"`       // when the figures were taken, by the worker's clock
	Tags         int        `json:"tags"`     // in memory
	IDsPerSecond Fraction   `json:"ids_per_second"`
	SecondsLeft  Fraction   `json:"seconds_left"` // of the tag that runs out first, see TagStats; null if none is in use
	Waiting      int        `json:"waiting"`      // requests that wait for a range now
	Waits        int64      `json:"waits"`        // requests that had to
	Loads        int64      `json:"loads"`        // of ranges, that succeeded
	Errors       int64      `json:"errors"`       // loads that failed
	Busiest      []TagStats `json:"busiest"`      // at most MaxBusiest, by IDsPerSecond
}

// TagStats is what one worker tells of one tag. Each worker has ranges of its
// own, and steps by its share of the traffic.
type TagStats struct {
	Tag          string   `json:"tag"`
	Worker       string   `json:"worker"` // the name of the worker that tells
	IDsPerSecond Fraction `json:"ids_per_second"`
	Peak         Fraction `json:"peak_ids_per_second"` // the highest over a second or more
	Left         int64    `json:"left"`                // IDs in memory
	// SecondsLeft is how long Left lasts at IDsPerSecond: as long as the store
	// may be away. null if nobody asks.
	SecondsLeft Fraction `json:"seconds_left"`
	Step        int64    `json:"step"`      // the tag's own, as of the last load; 0 before the first
	NextStep    int64    `json:"next_step"` // what the next load takes at least
	// RecommendedStep is 600 times Peak: with it a range lasts 10 minutes at
	// least. 0 before there is a peak.
	RecommendedStep int64      `json:"recommended_step"`
	LastRange       Fraction   `json:"last_range_seconds"` // how long the last range lasted; 0 if none was used up
	Loads           int64      `json:"loads"`              // that succeeded
	LoadSeconds     Fraction   `json:"load_seconds"`       // what the last one took
	Errors          int64      `json:"errors"`             // loads that failed
	Failing         bool       `json:"failing"`            // the last load failed; the worker's log tells why
	Waits           int64      `json:"waits"`              // requests that had to wait for a load
	Waiting         int        `json:"waiting"`            // those that wait now
	Ranges          []TagRange `json:"ranges"`             // in memory, in the order of their use; the first MaxRanges
}

// A TagRange is one range of a tag in a worker's memory: loaded as First to Last,
// both included, with Next the next ID to give. Next is Last + 1 if it is used
// up.
type TagRange struct {
	First   Decimal `json:"first"`
	Next    Decimal `json:"next"`
	Last    Decimal `json:"last"`
	Current bool    `json:"current"` // IDs are taken from this one
}

// A Fraction is a number that JSON carries with three decimals; +Inf is null.
type Fraction float64

// MarshalJSON writes the number.
func (f Fraction) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(f), 0) || math.IsNaN(float64(f)) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, math.Round(float64(f)*1000)/1000, 'f', -1, 64), nil
}

// UnmarshalJSON reads a number, or null as +Inf.
func (f *Fraction) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*f = Fraction(math.Inf(1))
		return nil
	}
	n, err := strconv.ParseFloat(string(data), 64)
	if err == nil {
		*f = Fraction(n)
	}
	return err
}
