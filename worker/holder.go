package worker

import (
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/natsid/natsid/internal/wire"
)

// A holder answers, on the subject of the worker number that is held, which
// worker holds it: so no other worker acquires the number, whatever the
// registry says. Only the goroutine of [Worker.Run] uses it.
//
// A worker that stops still answers until its connection is drained: until its
// last ID is issued.
type holder struct {
	link   *link
	ping   *pinger
	sub    *nats.Subscription // nil while there is no number
	number int                // whose subject sub is on
	known  proof              // that the server knows sub; 0 while there is none
}

// follow subscribes to the subject of the number that is held now. It returns an
// error until the server has taken that, if a number is held.
func (h *holder) follow() error {
	number, held, _ := h.link.Number()
	if h.sub != nil && (!held || number != h.number) {
		// It fails only on a connection that is gone, and the subscription with it.
		_ = h.sub.Unsubscribe()
		h.sub, h.known = nil, 0
	}
	if !held {
		return nil
	}
	if h.sub == nil {
		if err := h.subscribe(number); err != nil {
			return err
		}
	}
	if !h.ping.has(h.known) {
		return errNotBegun
	}
	return nil
}

// subscribe subscribes to the subject of a number.
func (h *holder) subscribe(number int) (err error) {
	subject := wire.Worker(h.link.Namespace, number)
	if h.sub, err = h.link.conn.Subscribe(subject, h.answer); err != nil {
		h.link.Log.Error("cannot listen for questions about the worker number, so other workers may find no holder; "+
			"trying again", "number", number, "error", err)
		return fmt.Errorf("worker: cannot answer for worker number %d: %w", number, err)
	}
	h.number, h.known = number, h.ping.ask()
	return nil
}

func (h *holder) answer(m *nats.Msg) {
	_, _, who := h.link.Number()
	body, err := json.Marshal(who)
	if err != nil {
		h.link.Log.Error("cannot answer which worker holds the worker number: report this as a bug", "error", err)
		return
	}
	h.link.sent(m.Respond(body))
}

// subscriptions returns how many subscriptions it has.
func (h *holder) subscriptions() int {
	if h.sub == nil {
		return 0
	}
	return 1
}
