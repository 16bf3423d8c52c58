package segment

import (
	"math"
	"time"
)

// A pace records how fast the IDs of one tag are used, and the step that follows from that.
type pace struct {
	speed      speedometer
	last       usage // of the last range; zero if none was used up yet
	judged     bool  // step already follows from last
	step       int64 // of the next load; 0 before the first
	configured int64 // the tag's own step; 0 before the first load
}

// note takes a reading: asked IDs were requested so far, and used is the range used up since the last reading, if any.
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
	// speedSpan is the shortest time over which the speed is measured: a batch counts as spread over it.
	speedSpan = 100 * time.Millisecond
	// peakSpan is the same for the peak: the busiest second.
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

// idle returns the time since the first reading that showed the last request: a little less than the time since that
// request.
func (s *speedometer) idle(now time.Duration, ids int64) time.Duration {
	if ids != s.last.ids {
		s.note(now, ids)
		return 0
	}
	return now - s.last.at
}

// at returns the present speed in IDs per second, measured since the reading before the last. Without requests it falls
// with time.
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
