package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/segment"
)

// A change is one command of an operator about one tag, at one worker.
type change struct {
	number  int
	life    *life
	verb    verb
	tag     *tag
	asked   segment.Tag    // to create
	wanted  segment.Change // to update
	began   time.Duration
	ended   bool
	revived bool  // it enabled a tag that was deleted
	refused bool  // it was answered that nothing was changed
	row     int64 // max_id when the change began
	writes  int   // entries and rows that it has changed
}

type verb int

const (
	createTag verb = iota
	updateTag
	raiseTag
	deleteTag
)

func (v verb) String() string { return [...]string{"create", "update", "raise", "delete"}[v] }

type changing struct{}

// changeOf returns the change that a context belongs to.
func changeOf(ctx context.Context) *change {
	c, _ := ctx.Value(changing{}).(*change)
	return c
}

// change makes a change, and more from now on.
func (w *world) change() {
	if w.quiet || w.over {
		return
	}
	m := pick(w.agenda, w.machines...)
	w.changeAt(m, pick(w.agenda, createTag, createTag, updateTag, updateTag, raiseTag, raiseTag, deleteTag),
		pick(w.agenda, w.names...))
	w.after(w.chance(4*time.Second), w.change)
	if w.one(3) { // two at once
		w.changeAt(pick(w.agenda, w.machines...), pick(w.agenda, createTag, updateTag, raiseTag, deleteTag),
			w.changes[len(w.changes)-1].tag.name)
	}
}

// changeAt makes a change at a worker.
func (w *world) changeAt(m *machine, v verb, name string) {
	if m.life == nil || m.life.isDead() {
		v = updateTag
	}
	c := &change{number: len(w.changes) + 1, life: m.life, verb: v, tag: w.tags[name], began: w.now()}
	c.row = w.db.copies[0].byName[name].MaxID
	w.changes = append(w.changes, c)
	if m.life == nil || m.life.isDead() {
		return
	}
	words := fmt.Sprintf("change %d", c.number)
	c.asked = segment.Tag{Name: name, Step: 1 + w.rnd.Int64N(30), Description: words}
	c.asked.Rules.Strict = w.isStrict(name)
	c.asked.MaxID = w.start(c.tag, 1+w.rnd.Int64N(50))
	switch {
	case v == raiseTag && w.one(2):
		c.wanted.RaiseBy = 1 + w.rnd.Int64N(pick[int64](w.agenda, 40, 40, 1_000_000))
	case v == raiseTag:
		c.wanted.MaxID = 1 + w.rnd.Int64N(500)
	}
	if v == updateTag || w.one(2) {
		c.wanted.Step = c.asked.Step
	}
	if w.one(3) {
		c.wanted.Description = &words
	}
	if v == createTag {
		c.tag.created, c.tag.deleted = c.began, 0
		for _, m := range w.machines {
			if m.life != nil {
				m.life.duty(name).gone = false
			}
		}
	}
	w.log("%s change %d: %v %s, step %d, max_id %d, raise by %d", c.life.name(), c.number, v, name, c.wanted.Step,
		c.wanted.MaxID, c.wanted.RaiseBy)
	go c.run()
}

// run makes the change as a worker does.
func (c *change) run() {
	l, w := c.life, c.life.world
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), changing{}, c), w.conf.config.Deadline)
	defer cancel()
	t, err := segment.Tag{Name: c.tag.name, Disabled: true}, error(nil)
	switch c.verb {
	case createTag:
		t, err = l.store.Create(ctx, c.asked, true)
	case deleteTag:
		err = l.store.Delete(ctx, c.tag.name)
	default:
		t, err = l.store.Update(ctx, c.tag.name, c.wanted)
	}
	if err == nil && !l.isDead() {
		l.alloc.See(t)
	}
	w.post(fmt.Sprintf("change %6d", c.number), func() { c.end(t, err) })
}

// end takes in the answer.
func (c *change) end(t segment.Tag, err error) {
	w := c.life.world
	if c.life.isDead() {
		return
	}
	c.ended = true
	c.refused = err != nil && !errors.Is(err, segment.ErrUncertain)
	w.log("%s change %d: %v %s: %+v, %s", c.life.name(), c.number, c.verb, c.tag.name, t, outcome(err))
	c.check()
	if !c.refused {
		w.announce(c.tag.name)
	}
	if err != nil {
		return
	}
	d := c.life.duty(c.tag.name)
	if c.verb == deleteTag {
		if w.now()-c.tag.created > 25*time.Second || c.tag.created == 0 {
			c.tag.deleted, d.gone = w.now(), true
		}
		if w.conf.kind == guardedTable && w.one(2) { // the row is not needed any more
			w.after(w.chance(time.Second), func() { w.removeRow(c.tag.name, c.row) })
		}
		return
	}
	least := t.Least
	if c.revived {
		least = t.MaxID // no ID that was loaded before the tag was deleted
	}
	d.least = max(d.least, least)
	c.tag.raised = append(c.tag.raised, raise{least, w.now()})
}

// wrote notes that a write of this change has changed the tag.
func (c *change) wrote() {
	c.writes++
	c.check()
}

// reservesName reports whether a write of this change leaves a tag unknown, which it is to create.
func (c *change) reservesName(e buckets.Entry) bool {
	w := c.life.world
	_, hasRow := w.db.copies[c.life.machine.side].byName[e.Key]
	return c.verb == createTag && w.conf.kind == guardedTable &&
		(!hasRow || strings.Contains(string(e.Value), disabled) || strings.Contains(string(e.Value), claimed))
}

// check fails if the change was refused and has changed something.
func (c *change) check() {
	if c.refused && c.writes > 0 {
		c.life.world.fail("change %d, %v of %s, was refused, and has changed the tag", c.number, c.verb, c.tag.name)
	}
}

// announce lets the other workers hear that a tag was changed, or not.
func (w *world) announce(name string) {
	for _, m := range w.machines {
		if w.one(4) {
			continue
		}
		w.after(w.chance(20*time.Millisecond), func() {
			if m.life != nil && !m.life.isDead() {
				m.life.alloc.Changed(name)
			}
		})
	}
}
