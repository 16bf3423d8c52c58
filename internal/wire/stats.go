package wire

import (
	"math"
	"strconv"
	"time"

	"github.com/natsid/natsid/subjects"
)

// MaxBusiest is how many tags [WorkerStats] shows at most. [subjects.TagList] pages through all tags.
const MaxBusiest = 20

// MaxRanges is how many ranges [TagStats] shows at most. A tag has more than two ranges in memory only while the store
// is slow.
const MaxRanges = 8

// WorkerStats has the statistics of one worker: of all its tags together, and of its busiest tags. It is the data of
// the endpoint [SegmentEndpoint] in a reply on [ServiceStats]. Each sum is over the tags in the worker's memory, and
// counts a tag's events since the tag entered memory. In JSON, IDs are strings; counts and durations are numbers.
type WorkerStats struct {
	Instance     string     `json:"instance"` // name of the worker
	Number       *int       `json:"number"`   // its worker number; null while it has none
	At           time.Time  `json:"at"`       // when the statistics were taken, by the worker's clock
	Tags         int        `json:"tags"`     // number of tags in the worker's memory
	IDsPerSecond Fraction   `json:"ids_per_second"`
	SecondsLeft  Fraction   `json:"seconds_left"` // until the first tag runs out of IDs; null if none is in use
	Waiting      int        `json:"waiting"`      // requests that wait for a load now
	Waits        int64      `json:"waits"`        // requests that had to wait for a load
	Loads        int64      `json:"loads"`        // loads that succeeded
	Errors       int64      `json:"errors"`       // loads that failed
	Busiest      []TagStats `json:"busiest"`      // at most MaxBusiest tags, the highest IDsPerSecond first
}

// TagStats has the statistics of one tag on one worker. Each worker loads ranges of its own, in steps that follow its
// share of the traffic.
type TagStats struct {
	Tag          string   `json:"tag"`
	Worker       string   `json:"worker"` // name of the worker
	IDsPerSecond Fraction `json:"ids_per_second"`
	Left         int64    `json:"left"` // number of IDs in memory
	// SecondsLeft is how long Left lasts at IDsPerSecond, and so how long requests are served without the store. It is
	// null if no IDs are requested.
	SecondsLeft Fraction `json:"seconds_left"`
	Step        int64    `json:"step"`      // configured for the tag at its last load; 0 before the first load
	NextStep    int64    `json:"next_step"` // least number of IDs that the next load reserves
	// RecommendedStep is the step, in IDs, with which a range lasts 10 minutes at the peak, the highest mean speed over
	// a second. It is 0 until a speed was measured.
	RecommendedStep int64      `json:"recommended_step"`
	Loads           int64      `json:"loads"`   // loads that succeeded
	Errors          int64      `json:"errors"`  // loads that failed
	Failing         bool       `json:"failing"` // the last load failed; see the worker's log
	Waits           int64      `json:"waits"`   // requests that had to wait for a load
	Waiting         int        `json:"waiting"` // requests that wait now
	Ranges          []TagRange `json:"ranges"`  // in memory, in the order of use; the first MaxRanges
}

// A TagRange is one range of a tag in a worker's memory, First to Last, both included. Next is the next ID to issue,
// and Last + 1 once the range is used up.
type TagRange struct {
	First   subjects.ID `json:"first"`
	Next    subjects.ID `json:"next"`
	Last    subjects.ID `json:"last"`
	Current bool        `json:"current"` // IDs are issued from this range
}

// A Fraction is a number that has at most three decimals in JSON, where null stands for +Inf.
type Fraction float64

// MarshalJSON writes the number; null for an infinity or NaN.
func (f Fraction) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(f), 0) || math.IsNaN(float64(f)) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, math.Round(float64(f)*1000)/1000, 'f', -1, 64), nil
}

// UnmarshalJSON reads a number; null is +Inf.
func (f *Fraction) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*f = Fraction(math.Inf(1))
		return nil
	}
	n, err := strconv.ParseFloat(string(data), 64)
	if err != nil {
		return err
	}
	*f = Fraction(n)
	return nil
}
