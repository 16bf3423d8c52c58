package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	errAway   = errors.New("no responders")
	errBroken = errors.New("the connection was lost")
	errDead   = errors.New("the process is dead")
)

// A call is one call of a worker to a store, from its begin to its end.
type call struct {
	life  *life
	ctx   context.Context
	what  string // of the story
	store *links // what it needs
	write bool
	op    *change // the change of a tag that it belongs to; nil for none
	// apply is the store's execution of the call. It returns the store's answer.
	apply func() error
	// refuse, if set, is how this store says that it did not do it.
	refuse error
	// waits, if set, reports whether the store lets the call wait, as on a lock.
	waits func() bool

	done chan struct{}
	err  error
}

// links are the links between workers and one kind of store.
type links struct {
	name string
	away bool              // no call gets through
	cut  map[*machine]bool // no call of these machines gets through
}

// do makes a call and waits for its end. After an error nothing that apply has set may be read.
func (c *call) do() error {
	w := c.life.world
	c.done = make(chan struct{})
	if c.life.isDead() {
		return errDead
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	c.op = changeOf(c.ctx)
	w.post(fmt.Sprintf("%s %s %s", c.life.name(), c.origin(), c.what), func() { w.plan(c) })
	select {
	case <-c.done:
		return c.err
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

func (c *call) origin() string {
	if c.op != nil {
		return fmt.Sprintf("change %d", c.op.number)
	}
	origin, ok := c.ctx.Value(origin{}).(string)
	if !ok {
		return "opening"
	}
	return origin
}

// plan decides the fate of a call.
func (w *world) plan(c *call) {
	w.log("    %s %s calls: %s", c.life.name(), c.origin(), c.what)
	there, back := w.chance(2*time.Millisecond), w.chance(2*time.Millisecond)
	if c.store.away || c.store.cut[c.life.machine] {
		if w.one(2) {
			w.after(there, func() { c.end(errAway) })
		}
		return
	}
	if w.healthy {
		w.after(there, func() { w.arrive(c, back) })
		return
	}
	switch w.rnd.IntN(w.rare) {
	case 0: // the call is lost
	case 1: // the reply is lost
		w.after(there, func() { w.arrive(c, 0) })
	case 2: // the reply is lost, and an error comes at once
		w.after(there, func() { w.arrive(c, 0); w.after(back, func() { c.end(errBroken) }) })
	case 3: // it arrives when nothing waits for it any more
		w.after(w.chance(20*time.Second), func() { w.arrive(c, back) })
	case 4: // the reply is late
		w.after(there, func() { w.arrive(c, w.chance(2*time.Second)) })
	case 5: // it fails on the way
		w.after(there, func() { c.end(errBroken) })
	case 6: // it is refused
		w.after(there, func() { c.end(c.refused()) })
	default:
		w.after(there, func() { w.arrive(c, back) })
	}
}

func (c *call) refused() error {
	if c.refuse != nil {
		return c.refuse
	}
	return errBroken
}

// arrive lets the store execute the call, and reply after back, if that is not 0.
func (w *world) arrive(c *call, back time.Duration) {
	if c.store.away || c.store.cut[c.life.machine] && w.one(2) {
		return
	}
	if c.waits != nil && c.waits() {
		w.wait(c, back)
		return
	}
	w.acting = c
	err := c.apply()
	w.acting = nil
	if c.write {
		w.log("%s %s: %s: %s", c.life.name(), c.origin(), c.what, outcome(err))
	}
	if back > 0 {
		w.after(back, func() { c.end(err) })
	}
}

// wait lets a call wait at the store. One whose caller has left ends there, or is done all the same.
func (w *world) wait(c *call, back time.Duration) {
	switch left := c.ctx.Err() != nil; {
	case left && w.one(2), c.life.isDead():
	case !left && w.one(300):
		c.end(c.refused())
	default:
		w.after(20*time.Millisecond+w.chance(time.Millisecond), func() { w.arrive(c, back) })
	}
}

func outcome(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}

// end ends a call that has not ended.
func (c *call) end(err error) {
	select {
	case <-c.done:
	default:
		c.err = err
		close(c.done)
	}
}

// origin is the context key of the operation to which a call belongs.
type origin struct{}

func from(ctx context.Context, what string) context.Context {
	return context.WithValue(ctx, origin{}, what)
}
