package worker

import (
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/natsid/natsid/internal/wire"
)

// A holder answers requests on the subject of the worker number that this process holds. So no other worker acquires
// the number, even if the registry lost the claim. Only the goroutine of the worker's connection uses a holder.
//
// A worker that stops keeps answering until its connection is drained: by then it has issued its last ID.
type holder struct {
	link   *link
	ping   *pinger
	sub    *nats.Subscription // nil while no number is held
	number int                // the number that sub is for
	known  proof              // the ping whose answer proves that the server knows sub; 0 if sub is nil
}

// follow subscribes for the number that is held now, and ends a subscription for another number. While a number is
// held, follow returns an error until the server knows the subscription.
func (h *holder) follow() error {
	number, held, _ := h.link.Number()
	if h.sub != nil && (!held || number != h.number) {
		// Unsubscribe fails only on a closed connection, which has no subscriptions.
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

// subscriptions returns how many subscriptions the holder has: 0 or 1.
func (h *holder) subscriptions() int {
	if h.sub == nil {
		return 0
	}
	return 1
}
