package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/fleet"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// A wire is the connection on which a life passes loads on: messages are lost, or late. Chances are those of the order,
// so that schedules in which nothing is passed on stay as they are.
type wire struct {
	life  *life
	hears map[string]nats.MsgHandler // by subject
	waits map[string]chan []byte     // by inbox
}

var _ fleet.Conn = (*wire)(nil)

// mayPassOn reports whether the workers of the world pass on the loads of strict tags to one of them.
func (w *world) mayPassOn() bool { return w.ordering != nil && w.seed%12 == 8 }

// passOn returns the store of a life that passes on, and what must run.
func (l *life) passOn(store segment.Store) (segment.Store, func(context.Context)) {
	l.wire = &wire{life: l, hears: map[string]nats.MsgHandler{}, waits: map[string]chan []byte{}}
	tags := fleet.NewStrictTags(fleet.StrictConfig{
		Namespace: subjects.DefaultNamespace, Conn: l.wire,
		Segments: func() *segment.Allocator { return l.alloc },
		Marks:    func() string { return "marks" },
		Loads:    func() bool { return true },
	})
	return tags.Over(store), tags.Run
}

func (c *wire) post(what string, f func()) {
	c.life.world.post(fmt.Sprintf("%s wire %s", c.life.name(), what), f)
}

// QueueSubscribe implements [fleet.Conn]. A life that is the loader no more hears what was sent to it before.
func (c *wire) QueueSubscribe(subject, _ string, f nats.MsgHandler) (*nats.Subscription, error) {
	c.post("hears "+subject, func() { c.hears[subject] = f })
	return nil, nil
}

// IsConnected implements [fleet.Conn].
func (c *wire) IsConnected() bool { return !c.life.isDead() }

// Publish implements [fleet.Conn].
func (c *wire) Publish(subject string, data []byte) error {
	if !c.life.isDead() {
		c.post("says "+subject+" "+string(data), func() { c.send(&nats.Msg{Subject: subject, Data: data}) })
	}
	return nil
}

// RequestWithContext implements [fleet.Conn]. One request for a tag is under way at a time.
func (c *wire) RequestWithContext(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	answer := make(chan []byte, 1)
	c.post("asks "+subject+" "+string(data), func() {
		w := c.life.world
		w.ordering.passed++
		inbox := fmt.Sprintf("%s.inbox.%d", c.life.name(), w.ordering.passed)
		c.waits[inbox] = answer
		if !c.send(&nats.Msg{Subject: subject, Reply: inbox, Data: data}) {
			close(answer)
		}
	})
	select {
	case data, ok := <-answer:
		if !ok {
			return nil, nats.ErrNoResponders
		}
		return &nats.Msg{Data: data}, nil
	case <-ctx.Done():
		return nil, errors.Join(nats.ErrTimeout, ctx.Err())
	}
}

// send lets a message arrive at one of the lives that hear its subject, and reports whether there is one.
func (c *wire) send(m *nats.Msg) (heard bool) {
	w := c.life.world
	var hear []*life
	for _, machine := range w.machines {
		l := machine.life
		if l == nil || l.isDead() || l.wire == nil {
			continue
		}
		if l != c.life && l.wire.hears[m.Subject] != nil || l.wire.waits[m.Subject] != nil {
			hear = append(hear, l)
		}
	}
	if hear == nil {
		return false
	}
	l, late := hear[w.ordering.rnd.IntN(len(hear))], w.ordering.chance(2*time.Millisecond)
	if !w.healthy {
		switch w.ordering.rnd.IntN(w.rare) {
		case 0:
			w.log("%s: a message to %s is lost", c.life.name(), m.Subject)
			return true
		case 1:
			late = w.ordering.chance(20 * time.Second)
		case 2:
			late = w.ordering.chance(400 * time.Millisecond)
		}
	}
	w.after(late, func() { l.wire.arrive(m) })
	return true
}

// arrive takes in a message.
func (c *wire) arrive(m *nats.Msg) {
	if c.life.isDead() {
		return
	}
	if answer := c.waits[m.Subject]; answer != nil {
		c.life.world.log("%s gets an answer to what it passed on", c.life.name())
		delete(c.waits, m.Subject)
		answer <- m.Data
		return
	}
	if m.Reply != "" {
		c.life.world.log("%s loads for another", c.life.name())
	}
	c.hears[m.Subject](m)
}
