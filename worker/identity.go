package worker

import (
	"encoding/json"
	"errors"
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
	cfg    *Config
	sub    *nats.Subscription // nil while there is no number
	number int                // whose subject sub is on
}

// follow subscribes to the subject of the number that is held now. It returns an
// error if it cannot.
func (i *identity) follow() error {
	number, held, _ := i.cfg.Number()
	if i.sub != nil && (!held || number != i.number) {
		// It fails only on a connection that is gone, and the subscription with it.
		_ = i.sub.Unsubscribe()
		i.sub = nil
	}
	if i.sub != nil || !held {
		return nil
	}
	sub, err := i.cfg.Conn.Subscribe(i.cfg.Namespace.Worker(number), i.answer)
	if err != nil {
		i.cfg.Log.Error("cannot listen for questions about the worker number, so other workers may find no holder; "+
			"trying again", "number", number, "error", err)
		return fmt.Errorf("worker: cannot answer for worker number %d: %w", number, err)
	}
	i.sub, i.number = sub, number
	return nil
}

func (i *identity) answer(m *nats.Msg) {
	_, _, who := i.cfg.Number()
	body, err := json.Marshal(who)
	if err != nil {
		i.cfg.Log.Error("cannot answer which worker holds the worker number: report this as a bug", "error", err)
		return
	}
	if err := m.Respond(body); err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
		i.cfg.Log.Debug("a reply was not sent", "error", err)
	}
}

// subscriptions returns how many subscriptions it has.
func (i *identity) subscriptions() int {
	if i.sub == nil {
		return 0
	}
	return 1
}
