package worker

import (
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
)

// An identity answers, on the subject of the worker number that is held, which
// worker holds it: so no other worker acquires the number, whatever the
// registry says. Only the goroutine of [Worker.Run] uses it.
//
// A worker that stops still answers until its connection is drained: until its
// last ID is issued.
type identity struct {
	link   *link
	ping   *pinger
	sub    *nats.Subscription // nil while there is no number
	number int                // whose subject sub is on
	known  proof              // that the server knows sub; 0 while there is none
}

// follow subscribes to the subject of the number that is held now. It returns an
// error until the server has taken that, if a number is held.
func (i *identity) follow() error {
	number, held, _ := i.link.Number()
	if i.sub != nil && (!held || number != i.number) {
		// It fails only on a connection that is gone, and the subscription with it.
		_ = i.sub.Unsubscribe()
		i.sub, i.known = nil, 0
	}
	if !held {
		return nil
	}
	if i.sub == nil {
		if err := i.subscribe(number); err != nil {
			return err
		}
	}
	if !i.ping.has(i.known) {
		return errNotBegun
	}
	return nil
}

// subscribe subscribes to the subject of a number.
func (i *identity) subscribe(number int) (err error) {
	subject := i.link.Namespace.Worker(number)
	if i.sub, err = i.link.conn.Subscribe(subject, i.answer); err != nil {
		i.link.Log.Error("cannot listen for questions about the worker number, so other workers may find no holder; "+
			"trying again", "number", number, "error", err)
		return fmt.Errorf("worker: cannot answer for worker number %d: %w", number, err)
	}
	i.number, i.known = number, i.ping.ask()
	return nil
}

func (i *identity) answer(m *nats.Msg) {
	_, _, who := i.link.Number()
	body, err := json.Marshal(who)
	if err != nil {
		i.link.Log.Error("cannot answer which worker holds the worker number: report this as a bug", "error", err)
		return
	}
	i.link.sent(m.Respond(body))
}

// subscriptions returns how many subscriptions it has.
func (i *identity) subscriptions() int {
	if i.sub == nil {
		return 0
	}
	return 1
}
