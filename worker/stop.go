package worker

import (
	"time"

	"github.com/nats-io/nats.go"
)

// stop leaves the queue groups, waits until every request that has been
// delivered is answered, and closes the connection: see the package comment.
func (w *Worker) stop() {
	w.changes.stop()
	w.drains.stop()
	w.evidence.leave()
	for _, s := range w.services {
		s.leave()
	}
	for _, g := range w.groups {
		g.leave()
	}
	w.settle(w.identity.subscriptions(), w.cfg.Deadline+2*time.Second)
	w.drain()
	w.ping.stop()
}

// settle waits, for patience at most, until the connection has no subscription
// but the given number of them, and every request is answered. A subscription
// is gone when its last request has left its queue, which is a moment before
// the handler counts that request: hence the counters must stand still for two
// looks. Answers given while there is no connection are sent on the next one.
func (w *Worker) settle(subscriptions int, patience time.Duration) {
	const look = 10 * time.Millisecond
	still, before, answers := 0, int64(-1), false
	for end := time.Now().Add(patience); still < 2 && time.Now().Before(end); time.Sleep(look) {
		arrived, open := w.requests()
		answers = answers || open > 0 || before >= 0 && arrived != before
		waits := answers
		if w.cfg.Conn.IsConnected() {
			waits = w.cfg.Conn.NumSubscriptions() > subscriptions
		}
		if waits || open > 0 || arrived != before {
			still = 0
		} else {
			still++
		}
		before = arrived
	}
}

// requests returns how many requests have arrived, and how many of them are not
// answered yet.
func (w *Worker) requests() (arrived, open int64) {
	for _, g := range w.groups {
		for _, e := range g.endpoints {
			open += e.counts.open()
			arrived += e.counts.arrived.Load()
		}
	}
	return arrived, open
}

// drainTimeout bounds the drain of the connection. All requests are answered by
// then, so only the server can delay it.
const drainTimeout = 2 * time.Second

func (w *Worker) drain() {
	closed := w.cfg.Conn.StatusChanged(nats.CLOSED)
	if err := w.cfg.Conn.Drain(); err != nil {
		w.cfg.Log.Warn("the connection could not be drained; replies under way may be lost", "error", err)
		w.cfg.Conn.Close()
		return
	}
	select {
	case <-closed:
	case <-time.After(drainTimeout): // the server does not answer
		w.cfg.Conn.Close()
	}
}
