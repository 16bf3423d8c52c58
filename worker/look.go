package worker

import "time"

// How often a worker looks at what it can serve.
const (
	lookSeldom = 50 * time.Millisecond // unless it is busy
	lookOften  = 5 * time.Millisecond  // while requests may be late
	lookAtRest = 500 * time.Millisecond
)

// Wake makes the worker look at once at what it can serve. It does not block, and is safe
// for concurrent use.
func (w *Worker) Wake() {
	select {
	case w.woken <- struct{}{}:
	default: // it is about to
	}
}

// look looks how busy the worker is, and returns when to look again.
func (w *Worker) look() time.Duration {
	now := clock()
	if w.due = now-w.looked >= markEvery; w.due {
		w.looked = now
	}
	pause := lookSeldom
	for _, g := range w.groups {
		if w.due {
			g.look()
		}
		switch {
		case g.lag.of(now) > markEvery:
			pause = lookOften
		case g.overload.on || g.granted > 0:
			pause = min(pause, markEvery)
		}
	}
	rests := pause == lookSeldom && w.rests()
	for _, g := range w.groups {
		for _, e := range g.endpoints {
			e.wakeIf(rests)
		}
	}
	if rests {
		return max(lookSeldom, w.evidence.patience(w.cfg.Rest))
	}
	return pause
}

// rests reports whether nothing but what wakes the worker can be due soon: requests, an
// answer of the server, an order, and a worker number that is lost or acquired ([Worker.Wake]).
func (w *Worker) rests() bool {
	if !w.due || len(w.dragged) > 0 || w.ping.out > 0 || len(w.drains.owed) > 0 || !w.cfg.Conn.IsConnected() {
		return false
	}
	for _, g := range w.groups {
		if !g.rests() {
			return false
		}
	}
	return w.cfg.Snowflakes.Ready(w.cfg.Deadline, w.cfg.Rest+leaveAhead) == nil
}
