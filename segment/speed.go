package segment

import (
	"math"
	"time"
)

// A speedometer measures how fast the IDs of one tag are asked for. It is told
// now and then how many were asked for so far; times are since the allocator
// began.
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
	// speedSpan is what the speed is measured over, at least: a batch counts as
	// spread over so long.
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

// at returns the present speed in IDs per second: that since the reading
// before the last. It fades while nobody asks.
func (s *speedometer) at(now time.Duration, ids int64) float64 {
	return speed(s.prev, reading{now, ids}, speedSpan)
}

// speed returns the IDs per second from one reading to another, never below 0:
// requests that were refused no longer count.
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
