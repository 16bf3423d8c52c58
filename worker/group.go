package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

const (
	// leaveAhead is how long before the end of its window a worker leaves the
	// queue group, so that it refuses hardly any request delivered to it.
	leaveAhead = 200 * time.Millisecond
	// pingTimeout is how long the server may take to answer before the
	// connection counts as lost.
	pingTimeout = time.Second
)

// refused returns why a mode must not be served at the moment, as it crosses the
// wire, or nil. It allocates nothing unless the mode is refused.
func (cfg *Config) refused(mode Mode) error {
	if cfg.Refused == nil {
		return nil
	}
	if why := cfg.Refused(mode); why != nil {
		return subjects.Errorf(subjects.Unavailable, "%v", why)
	}
	return nil
}

// errNotBegun is why a mode is not served before the server knows that it is.
var errNotBegun = errors.New("worker: not serving yet")

// A group is the queue subscriptions of one mode. They stand while the mode can
// be served, and only then: callers reach other workers, or learn from NATS at
// once that there are none. What was delivered is still answered. Only the
// goroutine of [Worker.Run] uses it, but for why.
type group struct {
	mode      Mode
	cfg       *Config
	endpoints []*endpoint
	// cannot returns why requests would fail, or nil; up reports whether the group
	// stands. nil: they never would.
	cannot func(up bool) error

	subs  []*nats.Subscription // of the endpoints; nil while down
	known bool                 // the server knows that it is up

	mu      sync.Mutex
	trouble error // why the mode is not served; nil while it is
}

// why returns why the mode is not served, or nil while it is. It is safe for
// concurrent use.
func (g *group) why() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.trouble
}

func (g *group) isUp() bool { return g.subs != nil }

// reason returns why the group should be down, or nil.
func (g *group) reason() error {
	if err := g.cfg.refused(g.mode); err != nil {
		return err
	}
	if g.cfg.Away != nil {
		if err := g.cfg.Away(g.mode); err != nil {
			return err
		}
	}
	if g.cannot != nil {
		return g.cannot(g.isUp())
	}
	return nil
}

// follow joins or leaves the queue group if it is time, and returns why the mode
// is not served, or nil.
func (g *group) follow() error {
	trouble := g.reason()
	if (trouble == nil) != g.isUp() || g.isUp() && !g.known {
		trouble = g.change(trouble)
	}
	return trouble
}

// say sets what why returns.
func (g *group) say(trouble error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trouble = trouble
}

// change joins if there is no trouble, else leaves, and returns why the mode is
// not served. It needs a server that answers, for the reason in the package
// comment; until then nothing changes.
func (g *group) change(trouble error) error {
	lost := g.cfg.Conn.FlushTimeout(pingTimeout)
	switch {
	case lost != nil && trouble != nil:
		return trouble
	case lost != nil:
		return fmt.Errorf("worker: the NATS server does not answer: %w", lost)
	case trouble != nil:
		g.cfg.Log.Warn("no longer serving", "mode", g.mode, "reason", trouble)
		g.leave()
		return trouble
	case !g.isUp():
		if err := g.join(); err != nil {
			g.cfg.Log.Error("cannot serve yet; trying again, while other workers answer", "mode", g.mode, "error", err)
			return err
		}
		if err := g.cfg.Conn.FlushTimeout(pingTimeout); err != nil {
			return err
		}
	}
	g.known = true
	g.cfg.Log.Info("serving", "mode", g.mode)
	return nil
}

// join subscribes to all endpoints, or to none and returns an error.
func (g *group) join() error {
	g.known = false
	for _, e := range g.endpoints {
		sub, err := g.cfg.Conn.QueueSubscribe(e.subject, subjects.QueueGroup, e.receive())
		if err != nil {
			g.leave()
			return fmt.Errorf("worker: %s: %w", e.subject, err)
		}
		g.subs = append(g.subs, sub)
	}
	return nil
}

// leave leaves the queue group. What was delivered is still answered.
func (g *group) leave() {
	drain(g.subs, g.cfg.Log)
	g.subs = nil
}

// drain leaves the subscriptions; what was delivered to them is still handled.
func drain(subs []*nats.Subscription, log *slog.Logger) {
	for _, sub := range subs {
		if err := sub.Drain(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			log.Warn("a subscription was not left cleanly", "subject", sub.Subject, "error", err)
		}
	}
}
