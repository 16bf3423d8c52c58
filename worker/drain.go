package worker

import (
	"encoding/json"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// drainLimit bounds the orders that wait for an answer at once.
const drainLimit = 16

// A drains takes the orders of operators to leave the queue groups, or to join them again.
// An answer says which groups stand once the order was followed. Only the goroutine of
// [Worker.Run] uses it, but for hear.
type drains struct {
	link     *link
	rights   *rights
	subject  string
	isLogged bool // that the subscription was refused
	heard    chan *nats.Msg
	wake     func()  // the worker
	owed     []order // that are followed, and not answered yet
}

// An order is followed before it is answered.
type order struct {
	subjects.WorkerDrain
	message *nats.Msg
}

func newDrains(l *link, r *rights, id string, wake func()) *drains {
	return &drains{
		link: l, rights: r, subject: l.Namespace.Drain(id), heard: make(chan *nats.Msg, drainLimit),
		wake: wake,
	}
}

// hear takes an order that has arrived.
func (d *drains) hear(m *nats.Msg) {
	if m.Reply != "" && d.link.misled(m) {
		return
	}
	select {
	case d.heard <- m:
		d.wake()
	default:
		d.refuse(m, subjects.Errorf(subjects.TooMany, "%d orders wait already: retry later", drainLimit))
	}
}

// take takes the orders that have arrived.
func (d *drains) take() {
	if !d.isLogged && d.rights.subscription(d.subject) != "" {
		d.isLogged = true
		d.link.Log.Error("`natsid drain` does not reach this worker; give the right, and restart it",
			"reason", errSubscription(d.subject, ""))
	}
	for range len(d.heard) {
		m := <-d.heard
		o, err := subjects.ParseWorkerDrain(m.Data)
		if err != nil {
			d.refuse(m, err)
			continue
		}
		switch changed := d.link.Drain(!o.Undo); {
		case changed && o.Undo:
			d.link.Log.Info("an operator lets this worker serve again", originOf(m))
		case changed:
			d.link.Log.Warn("an operator has drained this worker: it leaves its queue groups, and keeps its number",
				originOf(m))
		}
		d.owed = append(d.owed, order{o, m})
	}
}

// answer answers the orders that were taken before the groups followed them.
func (d *drains) answer(groups []*group, open int64) {
	for _, o := range d.owed {
		state := subjects.WorkerDrained{
			Instance: d.link.Instance(), Drained: !o.Undo, Serves: []string{}, Open: open,
		}
		if number, held, _ := d.link.Number(); held {
			state.Number = &number
		}
		for _, g := range groups {
			if g.isUp() || len(g.draining) > 0 {
				state.Serves = append(state.Serves, string(g.mode))
			}
		}
		if body, err := json.Marshal(state); err != nil {
			d.refuse(o.message, err)
		} else {
			d.link.sent(o.message.Respond(body))
		}
	}
	d.owed = nil
}

func (d *drains) refuse(m *nats.Msg, err error) {
	d.link.sent(m.RespondMsg(&nats.Msg{Header: wireError(err, d.link.Log).Headers()}))
}
