package worker

import "time"

// How often a worker looks at what it can serve.
const (
	lookSeldom = 50 * time.Millisecond // by default
	lookOften  = 5 * time.Millisecond  // while requests may be late
	lookAtRest = 500 * time.Millisecond
)

// look measures how busy each queue group of this worker is, and returns the pause until the next call of look.
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

// isIdle reports whether the next look may be delayed: only events that wake the worker can change what it serves.
// These are requests, an answer of the server, and a lost or acquired worker number ([Worker.Wake]).
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
