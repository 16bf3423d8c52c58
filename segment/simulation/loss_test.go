package simulation_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
)

// lose lets JetStream lose marks that it acknowledged, where the world does so.
func (w *world) lose() {
	if w.lost > 0 && w.now()-w.lost < 25*time.Second || w.mayBeCreated() {
		return // what is under way, such as the creation of a tag, belongs to one bucket
	}
	switch {
	case w.conf.loss == wiped && slices.ContainsFunc(w.machines, func(m *machine) bool { return !m.knows.Load() }):
		return // a worker that never knew the bucket would found another while those that did are down
	case w.conf.loss == wiped:
		w.js.bucket, w.js.past = nil, nil
		w.log("the bucket is deleted")
	case w.conf.loss == setBack && len(w.js.past) > 0:
		w.js.bucket = w.js.past[w.rnd.IntN(len(w.js.past))]
		w.js.past = nil
		w.log("the bucket is restored at revision %d", w.js.bucket.last)
	default:
		return
	}
	w.lost = w.now()
	// A tag that was deleted may be there again, and a raise that no worker has seen yet is lost.
	for _, t := range w.tags {
		t.deleted, t.created, t.raised = 0, w.now(), nil
	}
	for _, m := range w.machines {
		if m.life != nil {
			for _, d := range m.life.duties {
				d.gone = false
			}
		}
	}
}

// mayBeCreated reports whether the creation of a tag may land in the next bucket, and could not be told from one there:
// that names the identity of its bucket, if it has one.
func (w *world) mayBeCreated() bool {
	if b := w.js.bucket; b == nil || len(b.entries[buckets.Own].Value) > 0 {
		return false
	}
	return slices.ContainsFunc(w.changes, func(c *change) bool {
		return c.verb == createTag && w.now()-c.began < 25*time.Second
	})
}

var errKnown = errors.New("a worker knows another bucket of this name")

// mayFound asks whether another bucket of the name is or was in use: it asks the running workers, and the memory of
// this machine.
func (l *life) mayFound(context.Context) error {
	for _, m := range l.world.machines {
		if m != l.machine && m.down.Load() {
			continue
		}
		if store := m.store.Load(); m.knows.Load() || store != nil && store.Own().Known() > 0 {
			return errKnown
		}
	}
	return nil
}

// start is where an operator lets a tag begin that may have been lost: far above all that was loaded, since the command
// may land late.
func (w *world) start(t *tag, at int64) int64 {
	switch {
	case w.conf.loss != wiped:
		return at
	case w.conf.kind == marksAlone:
		return t.top + 1_000_000
	}
	return t.top + 1000
}
