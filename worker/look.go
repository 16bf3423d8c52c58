package worker

import "time"

// How often a worker looks at what it can serve.
const (
	lookSeldom = 50 * time.Millisecond // unless it is busy
	lookOften  = 5 * time.Millisecond  // while requests may be late
	lookAtRest = 500 * time.Millisecond
)

// look looks how busy the worker is, and returns when to look again.
func (m *membership) look() time.Duration {
	now := clock()
	if m.isDue = now-m.looked >= markEvery; m.isDue {
		m.looked = now
	}
	pause := lookSeldom
	for _, g := range m.groups {
		if m.isDue {
			g.lag.look(g.arrived(), g.waiting())
		}
		switch {
		case g.lag.of(now) > markEvery:
			pause = lookOften
		case g.overload.on || g.credit.granted > 0:
			pause = min(pause, markEvery)
		}
	}
	isIdle := pause == lookSeldom && m.isIdle()
	for _, g := range m.groups {
		for _, e := range g.endpoints {
			e.wakeIf(isIdle)
		}
	}
	if isIdle {
		return max(lookSeldom, m.link.Rest)
	}
	return pause
}

// isIdle reports whether nothing can be due soon but events that wake the worker: requests, an
// answer of the server, and a worker number that is lost or acquired ([Worker.Wake]).
func (m *membership) isIdle() bool {
	if !m.isDue || m.ping.out > 0 {
		return false
	}
	for _, g := range m.groups {
		if !g.isIdle() {
			return false
		}
	}
	return m.link.Snowflakes.Ready(m.link.Deadline, m.link.Rest+leaveAhead) == nil
}
