package segment

import (
	"math"
	"time"
)

// A stepRule computes the number of IDs that the next load of a tag reserves from how long the last range lasted, so
// that at any traffic a range lasts between time and twice time. It is Leaf's rule, in arithmetic that does not
// overflow.
type stepRule struct {
	// max is the highest step, at least 1. A tag whose own step is higher keeps it.
	max int64
	// time is how long a range should last at least, above 0.
	time time.Duration
}

// next returns the step that follows step. configured is the tag's own step, which is the lower bound of the result.
// lasted is how long a range of step IDs lasted: below time the step doubles, above twice time it halves, in between it
// stays. Idle time belongs to the range that it falls into, so a night costs one halving.
func (r stepRule) next(step, configured int64, lasted time.Duration) int64 {
	switch {
	case lasted < r.time:
		step = double(step)
	case lasted-r.time > r.time: // 2*r.time might overflow
		step /= 2
	}
	return r.clamp(step, configured)
}

// clamp returns step within the bounds of the rule and the tag.
func (r stepRule) clamp(step, configured int64) int64 {
	return max(configured, min(step, r.max))
}

func double(n int64) int64 {
	if n > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return 2 * n
}

// A usage says that ids IDs lasted for some time: one range, or several that a single request used up.
type usage struct {
	ids    int64
	lasted time.Duration
}

// of returns how long step IDs last at the same speed. A range is longer or shorter than the step if the step has just
// changed, or a large batch was requested: judged by its plain time, the rule would double and halve the step for ever.
func (u usage) of(step int64) time.Duration {
	d := float64(u.lasted) * float64(step) / float64(u.ids)
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(d)
}
