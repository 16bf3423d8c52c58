package holder

import (
	"cmp"
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
)

var (
	errNotAsked   = errors.New("the workers have not been asked yet whether their registry is stopped")
	errUnanswered = errors.New("the NATS server does not confirm yet that this program answers for its number")
)

// settle applies a change under the lock, and then gives the issuer the keeper's generator, or none.
//
// Law: in a registry that lost its records, a number whose owner does not answer looks free. So nothing is issued
// under a number before the server has confirmed that this holder hears questions about it, nor while the registry
// is stopped.
func (h *Holder) settle(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	g := h.offered
	if h.obstacle() != nil {
		g = nil
	}
	h.issuer.Use(g)
}

// obstacle returns why nothing may be issued from the keeper's generator, that of the worker number; nil if it may. The
// lock is held.
func (h *Holder) obstacle() error {
	switch {
	case h.stopped != nil: //mutant:stopped
		return h.stopped
	case h.offered != nil && h.offered.Worker() != h.answered: //mutant:answered
		return errUnanswered
	}
	return nil
}

const (
	lookEvery = 100 * time.Millisecond
	// askEvery is how often workers are asked about their registry. An answer rests on a check of the last 3 s.
	askEvery = 7 * time.Second
)

// live answers for the present number, asks the workers about their registry, and calls OnChange, until ctx ends.
func (h *Holder) live(ctx context.Context) {
	var (
		bus   = natsbus.New(h.nc, h.cfg.Namespace)
		sub   *nats.Subscription
		asked time.Time
		told  [2]bool
	)
	for ctx.Err() == nil {
		sub = h.follow(ctx, sub)
		if time.Since(asked) >= askEvery {
			asked = time.Now()
			h.ask(ctx, bus)
		}
		issues, err := h.state()
		if is := [2]bool{issues, err == nil}; is != told {
			if told = is; h.cfg.OnChange != nil {
				h.cfg.OnChange(err)
			}
		}
		_ = jitter.Sleep(ctx, lookEvery)
	}
}

// follow returns the subscription on which this holder answers for its present number; nil without a number. sub is
// the previous one. It waits until the server has confirmed a new subscription.
func (h *Holder) follow(ctx context.Context, sub *nats.Subscription) *nats.Subscription {
	number, held := h.Number()
	if sub != nil && held && number == h.answered {
		return sub
	}
	if sub != nil {
		h.settle(func() { h.answered = -1 })
		_ = sub.Unsubscribe() // it fails only on a closed connection, which has no subscriptions
	}
	if !held {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	sub, err := h.nc.Subscribe(wire.Worker(h.cfg.Namespace, number), h.say)
	if err == nil && h.nc.FlushWithContext(ctx) == nil {
		h.settle(func() { h.answered = number })
	}
	return sub
}

// say answers a worker's question which process holds the number.
func (h *Holder) say(m *nats.Msg) {
	body, err := json.Marshal(h.keeper.Who())
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		h.cfg.Log.Error("cannot say who holds the worker number", "error", err)
	}
}

// ask asks the workers whether a second registry has stopped theirs.
//
// Law: two registries behind one subject may give the same snowflakes. When a link connects them, their workers
// stop within 10 s, and a holder stops within 10 s more. If only workers of another registry answer, and that
// registry is not stopped, the holder stops too. If nobody answers, the last verdict holds; before the first
// verdict the holder issues, as a worker does that hears of no other registry.
func (h *Holder) ask(ctx context.Context, bus *natsbus.Bus) {
	all, _ := lineage.AskFunc(bus.Ask).Look(ctx, h.keeper.Who().Process)
	stopped := h.stopped
	if errors.Is(stopped, errNotAsked) {
		stopped = nil
	}
	if len(all) > 0 {
		stopped = verdict(h.keeper.Status().Registry, all)
	}
	h.settle(func() { h.stopped = stopped })
}

// verdict returns why no IDs may be issued under numbers of this registry, given the notices of all workers that
// answered; nil if they may.
func verdict(registry string, all []lineage.Notice) (stopped error) {
	answers := false // a worker of the registry has answered
	for _, n := range all {
		isOwn := n.Numbers == registry || n.Numbers == "" || registry == ""
		switch {
		case isOwn && n.Other != "":
			return fmt.Errorf("the registry is stopped, since registry %s serves the same subjects: "+
				"`natsid resume` shows both", n.Other)
		case isOwn:
			answers = true
		case n.Other == "":
			stopped = fmt.Errorf("registry %s serves the same subjects, and no worker answers whose registry is that "+
				"of this number: start one, then `natsid resume` shows both", n.Registry)
		}
	}
	if answers {
		return nil
	}
	return stopped
}

// state reports whether IDs can be issued. err is why they cannot, or why a window that ends soon is not renewed.
func (h *Holder) state() (issues bool, err error) {
	if err := h.issuer.Ready(time.Hour, 0); err != nil {
		return false, h.explain(err)
	}
	s := h.keeper.Status()
	if until := time.UnixMilli(s.Until); s.Trouble != nil && time.Until(until) < h.cfg.Horizon/2 {
		err = fmt.Errorf("no snowflakes from %s on unless the window is renewed: %w",
			until.UTC().Format(time.TimeOnly), s.Trouble)
	}
	return true, err
}

// explain adds the cause, the number and the end of the window to an error, as far as they are known.
func (h *Holder) explain(err error) error {
	s := h.keeper.Status()
	h.mu.Lock()
	defer h.mu.Unlock()
	if why := cmp.Or(s.Trouble, h.obstacle()); why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	if s.Held {
		err = fmt.Errorf("%w (number %d, window to %s)", err, s.Number,
			time.UnixMilli(s.Until).UTC().Format(time.DateTime))
	}
	return err
}
