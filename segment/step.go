package segment

import (
	"math"
	"time"
)

// A StepRule says how many IDs the next load of a tag takes, from how long the
// last range lasted, so that at any traffic a range lasts for Time to twice
// Time. It is Leaf's rule, in arithmetic that does not overflow.
type StepRule struct {
	// Max is the most that a step grows to, at least 1. A tag configured with
	// more keeps what it is configured with.
	Max int64
	// Time is how long a range should last at least, above 0.
	Time time.Duration
}

// Next returns the step that follows step. configured is the tag's own, which
// the result is never below. lasted is how long a range of step IDs lasted:
// under Time the step doubles, over twice Time it halves, in between it stays.
func (r StepRule) Next(step, configured int64, lasted time.Duration) int64 {
	switch {
	case lasted < r.Time:
		step = double(step)
	case lasted-r.Time > r.Time: // 2*r.Time might overflow
		step /= 2
	}
	return r.clamp(step, configured)
}

// clamp returns step within what the rule and the tag allow.
func (r StepRule) clamp(step, configured int64) int64 {
	return max(configured, min(step, r.Max))
}

func double(n int64) int64 {
	if n > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return 2 * n
}

// A usage is how long how many IDs lasted: those of one range, or of several
// that one request used up together.
type usage struct {
	ids    int64
	lasted time.Duration
}

// of returns how long step IDs last at the same speed. Ranges differ in length
// from the step where it has just changed or a large batch was asked for; told
// the plain time, the rule would double twice for one cause, and halve again.
func (u usage) of(step int64) time.Duration {
	d := float64(u.lasted) * float64(step) / float64(u.ids)
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(d)
}
