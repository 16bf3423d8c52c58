package holder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/registry/natsbus"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
)

var (
	errNotAsked   = errors.New("the workers have not been asked yet whether their registry is stopped")
	errUnanswered = errors.New("the NATS server does not confirm yet that this program answers for its number")
)

// use takes in which generator the keeper offers; nil for none.
func (h *Holder) use(g *snowflake.Generator) {
	h.settle(func() { h.offered = g })
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// settle makes a change, and decides from which generator is issued.
//
// Law: a number whose owner does not answer looks free in a registry that lost its records. So nothing is issued under
// a number before the server knows the subscription on its subject, nor while the registry is stopped.
func (h *Holder) settle(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	g := h.offered
	if g != nil && g.Worker() != h.answered { //mutant:answered
		g = nil
	}
	if h.refused != nil { //mutant:refused
		g = nil
	}
	h.gen.Store(g)
}

// trouble returns why nothing is issued, nil if there is no reason.
func (h *Holder) trouble() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch err := h.keeper.Status().Trouble; {
	case h.offered == nil || err != nil:
		return err
	case h.refused != nil:
		return h.refused
	case h.offered.Worker() != h.answered:
		return errUnanswered
	}
	return nil
}

// answer makes a subscription follow the number that is held, until ctx ends.
func (h *Holder) answer(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		h.follow(ctx)
		select {
		case <-h.wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// follow subscribes to the subject of the number that is held, and waits until the server knows that.
func (h *Holder) follow(ctx context.Context) {
	who, held := h.keeper.Who()
	if h.sub != nil && (!held || who.Number != h.number) {
		h.settle(func() { h.answered = -1 })
		_ = h.sub.Unsubscribe() // it fails only on a closed connection, which has no subscriptions
		h.sub = nil
	}
	if !held {
		return
	}
	if h.sub == nil {
		sub, err := h.nc.Subscribe(wire.Worker(h.cfg.Namespace, who.Number), h.say)
		if err != nil {
			h.cfg.Log.Error("cannot answer for the worker number; trying again", "number", who.Number, "error", err)
			return
		}
		h.sub, h.number = sub, who.Number
	}
	h.mu.Lock()
	known := h.answered == h.number
	h.mu.Unlock()
	if known {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if h.nc.FlushWithContext(ctx) == nil {
		h.settle(func() { h.answered = h.number })
	}
}

// say answers the question who holds the number.
func (h *Holder) say(m *nats.Msg) {
	who, _ := h.keeper.Who()
	body, err := json.Marshal(who)
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		h.cfg.Log.Error("cannot say who holds the worker number", "error", err)
	}
}

// askEvery is how often workers are asked about their registry.
const askEvery = 10 * time.Second

// ask asks the workers whether their registry is stopped for another one, until ctx ends.
//
// Law: of two registries behind one subject, both may give the same snowflakes. Their workers stop within 10 s of a
// link, and a holder follows within 10 s more. Where nobody answers, the last answer holds; without one the holder
// issues, as a worker would that hears of no other registry.
func (h *Holder) ask(ctx context.Context) {
	bus := natsbus.New(h.nc, h.cfg.Namespace)
	for {
		refused := h.refusal(ctx, bus)
		h.settle(func() { h.refused = refused })
		if jitter.Sleep(ctx, askEvery) != nil {
			return
		}
	}
}

func (h *Holder) refusal(ctx context.Context, bus *natsbus.Bus) error {
	s := h.keeper.Status()
	all, _ := lineage.AskFunc(bus.Ask).Notices(ctx, lineage.Notice{Process: h.process, Instance: s.Instance})
	h.mu.Lock()
	last := h.refused
	h.mu.Unlock()
	if errors.Is(last, errNotAsked) {
		last = nil
	}
	for _, n := range all {
		if n.Numbers != s.Registry && n.Numbers != "" && s.Registry != "" {
			continue // of another registry
		}
		if last = nil; n.Other != "" {
			return fmt.Errorf("the registry is stopped, since registry %s serves the same subjects: "+
				"`natsid resume` shows both", n.Other)
		}
	}
	return last
}

// watch tells the program when issuing ends, is about to end, and goes on.
func (h *Holder) watch() {
	var last string
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-tick.C:
		case <-h.ended:
			tick.Stop()
			return
		}
		state, err := h.state()
		if state != last && h.cfg.OnChange != nil {
			h.cfg.OnChange(err)
		}
		last = state
	}
}

// state returns what OnChange is told, and a text that changes with the kind of it.
func (h *Holder) state() (kind string, err error) {
	s := h.keeper.Status()
	until := time.UnixMilli(s.Until)
	g := h.gen.Load()
	if g == nil {
		return "none", fmt.Errorf("%w: %w", snowflake.ErrNoNumber, h.trouble())
	}
	err = g.CheckAt(now())
	if behind, ok := errors.AsType[*snowflake.BehindError](err); ok && behind.By <= h.longest {
		err = nil // a burst
	}
	switch {
	case err != nil:
		return "refused", h.explain(err)
	case s.Trouble != nil && time.Until(until) < h.horizon()/2:
		return "ends", fmt.Errorf("no snowflakes from %s on unless the window is renewed: %w",
			until.UTC().Format(time.TimeOnly), s.Trouble)
	}
	return "", nil
}

func (h *Holder) horizon() time.Duration {
	if h.cfg.Horizon == 0 {
		return workerid.DefaultHorizon
	}
	return h.cfg.Horizon
}
