package segment

import (
	"math"
	"time"
)

// A pace records how fast the IDs of one tag are used, and computes the step from that.
type pace struct {
	speed      speedometer
	last       usage // of the last range; zero if no range was used up yet
	judged     bool  // step was already computed from last
	step       int64 // of the next load; 0 before the first
	configured int64 // the tag's own step; 0 before the first load
}

// note takes a reading: asked is how many IDs were requested so far, used is the range used up since the last reading.
func (p *pace) note(now time.Duration, asked int64, used usage) {
	p.speed.note(now, asked)
	if used.ids > 0 {
		p.last, p.judged = used, false
	}
}

// nextStep returns the step of the next load. The step moves once per range.
func (p *pace) nextStep(rule stepRule) int64 {
	if p.last.ids > 0 && !p.judged {
		p.step = rule.next(p.step, p.configured, p.last.of(p.step))
		p.judged = true
	}
	return p.step
}

// configure takes over the tag's own step, from the next load on. A lowered step replaces the current step even if
// that had grown.
func (p *pace) configure(step int64, rule stepRule) {
	switch {
	case step < 1 || step == p.configured:
	case step < p.configured:
		p.configured, p.step = step, step
	default:
		p.configured, p.step = step, rule.clamp(p.step, step)
	}
}

// A speedometer measures how fast the IDs of one tag are requested, from occasional readings of the number requested
// so far. Times are since the allocator was created.
type speedometer struct {
	prev, last reading
	peakFrom   reading
	peak       float64 // highest speed over peakSpan or more, IDs/s
}

type reading struct {
	at  time.Duration
	ids int64
}

const (
	// speedSpan is the shortest time over which the speed is measured: a batch counts as spread over that time.
	speedSpan = 100 * time.Millisecond
	// peakSpan is the shortest time over which the peak is measured.
	peakSpan = time.Second
)

func newSpeedometer(now time.Duration) speedometer {
	start := reading{at: now}
	return speedometer{prev: start, last: start, peakFrom: start}
}

// note takes a reading.
func (s *speedometer) note(now time.Duration, ids int64) {
	r := reading{now, ids}
	if now-s.last.at >= speedSpan {
		s.prev, s.last = s.last, r
	}
	if now-s.peakFrom.at >= peakSpan {
		s.peak = max(s.peak, speed(s.peakFrom, r, peakSpan))
		s.peakFrom = r
	}
}

// idle returns the time since the first reading that included the last request, a little less than the time since that
// request.
func (s *speedometer) idle(now time.Duration, ids int64) time.Duration {
	if ids != s.last.ids {
		s.note(now, ids)
		return 0
	}
	return now - s.last.at
}

// at returns the present speed in IDs per second, measured since the reading before the last one. Without requests it
// falls with time.
func (s *speedometer) at(now time.Duration, ids int64) float64 {
	return speed(s.prev, reading{now, ids}, speedSpan)
}

// speed returns the IDs per second from one reading to another, never below 0: refused requests are subtracted from
// the readings.
func speed(from, to reading, atLeast time.Duration) float64 {
	d := max(to.at-from.at, atLeast).Seconds()
	return max(0, float64(to.ids-from.ids)/d)
}

// count returns n as an integer, saturating.
func count(n float64) int64 {
	if n >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n)
}

// A stepRule computes the number of IDs that the next load of a tag reserves from how long the last range lasted, so
// that at any traffic a range lasts between time and twice time. It is Leaf's rule, in arithmetic that does not
// overflow.
type stepRule struct {
	// max is the highest step, at least 1. A tag whose own step is higher keeps it.
	max int64
	// time is how long a range should last at least, above 0.
	time time.Duration
}

// next returns the step after step. configured is the tag's own step, the lower bound of the result. lasted is how long
// a range of step IDs lasted: below r.time the step doubles, above twice r.time it halves, in between it stays. Idle
// time counts for the range in use, so a night without requests halves the step once.
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

// A usage is how long ids IDs lasted: of one range, or of several that a single request used up.
type usage struct {
	ids    int64
	lasted time.Duration
}

// of returns how long step IDs last at the same speed. A range is longer or shorter than the step if the step has just
// changed, or a large batch was requested. Computed from that range's own duration, the step would double and halve for
// ever.
func (u usage) of(step int64) time.Duration {
	d := float64(u.lasted) * float64(step) / float64(u.ids)
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(d)
}
