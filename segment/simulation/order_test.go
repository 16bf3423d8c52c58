package simulation_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/natsid/natsid/segment"
)

// An ordering is which tags are strict, as operators have it, and from when on that is a promise: once every worker
// that lives has heard of it. A worker that starts reads it, and one that may have missed a change is in doubt until it
// has read it again. It draws from chances of its own, so that schedules without strict tags stay as they are.
type ordering struct {
	rnd       *rand.Rand
	strict    map[string]bool
	promised  map[string]bool
	unheard   map[string]map[*life]bool // by whom a change to strict has not been heard
	requests  uint64                    // that were judged
	fromLoads uint64                    // of those, the ones that were served
	passed    int                       // messages that passed a load on
}

func newOrdering(seed uint64) *ordering {
	return &ordering{
		rnd: rand.New(rand.NewPCG(seed, 17)), strict: map[string]bool{}, promised: map[string]bool{},
		unheard: map[string]map[*life]bool{},
	}
}

// mayOrder reports whether the world has strict tags: some with marks that lose nothing do.
func (w *world) mayOrder(seed uint64) bool {
	return w.conf.loss == kept && seed%4 == 0
}

// order makes some tags strict, and changes that from now on.
func (w *world) order() {
	o := newOrdering(w.seed)
	w.ordering = o
	for _, name := range w.names[:1+o.rnd.IntN(len(w.names))] {
		o.strict[name], o.promised[name] = true, true
	}
	w.log("strict: %v", o.strict)
	w.after(o.chance(4*time.Second), w.reorder)
}

func (o *ordering) chance(d time.Duration) time.Duration {
	return time.Duration(1 + o.rnd.Int64N(int64(d)))
}

// reorder makes a strict tag loose, or a loose one strict, or lets a worker doubt.
func (w *world) reorder() {
	if w.quiet || w.over {
		return
	}
	o := w.ordering
	w.after(o.chance(6*time.Second), w.reorder)
	if o.rnd.IntN(2) == 0 {
		w.doubt(w.machines[o.rnd.IntN(len(w.machines))].life)
		return
	}
	name := w.names[o.rnd.IntN(len(w.names))]
	o.strict[name] = !o.strict[name]
	delete(o.promised, name)
	delete(o.unheard, name)
	w.log("%s is to be strict: %t", name, o.strict[name])
	unheard := map[*life]bool{}
	if o.strict[name] {
		o.unheard[name] = unheard
	}
	for _, m := range w.machines {
		if l := m.life; l != nil && !l.isDead() {
			unheard[l] = !l.doubts
			w.after(o.chance(2*time.Second), func() { w.hears(l) })
		}
	}
}

// doubt lets a worker that reconnects doubt which tags are strict.
func (w *world) doubt(l *life) {
	if l == nil || l.isDead() {
		return
	}
	w.log("%s doubts which tags are strict", l.name())
	l.alloc.Doubt()
	l.doubts = true
	w.heard(l)
	w.after(w.ordering.chance(time.Second), func() { w.hears(l) })
}

// hears lets a worker read which tags are strict.
func (w *world) hears(l *life) {
	if !l.isDead() {
		l.alloc.SetStrict(w.ordering.strict)
		l.doubts = false
		w.log("%s knows which tags are strict", l.name())
	}
	w.heard(l)
}

// heard notes that a worker serves no ID that was loaded for another order. Only what all workers keep is promised.
func (w *world) heard(l *life) {
	o := w.ordering
	for _, name := range slices.Sorted(maps.Keys(o.unheard)) {
		unheard := o.unheard[name]
		unheard[l] = false
		maps.DeleteFunc(unheard, func(other *life, waits bool) bool { return !waits || other.isDead() })
		if len(unheard) == 0 {
			delete(o.unheard, name)
			o.promised[name] = true
			w.log("%s is strict from now on", name)
		}
	}
}

// ordered lets a life that starts know which tags are strict, at once or after a doubt.
func (w *world) ordered(l *life) {
	switch o := w.ordering; {
	case o == nil:
	case o.rnd.IntN(3) == 0:
		w.doubt(l)
	default:
		l.alloc.SetStrict(o.strict)
	}
}

// floor returns the ID above which a request that begins now must get all of its own: the highest of a tag that any
// ended request got, if order is promised of it.
//
// Judging each request against the highest so far judges every pair: of two requests, one began after the other ended.
func (w *world) floor(t *tag) int64 {
	if w.ordering == nil || !w.ordering.promised[t.name] {
		return 0
	}
	w.ordering.requests++
	return t.highest
}

// judgeOrder takes in the IDs that a request got, which has just ended. One that began while its tag was strict and is
// served by a worker that knows it to be loose again is served as one of a loose tag, perhaps from IDs that were loaded
// before it began: that a tag is loose takes effect at once.
func (r *request) judgeOrder(ranges []segment.Range) {
	w := r.life.world
	if r.above > 0 && (w.ordering.promised[r.tag.name] || r.life.alloc.IsStrict(r.tag.name)) {
		w.ordering.fromLoads++
		if ranges[0].Start <= r.above {
			w.fail("%s issues %d of %s, which is strict, in a request that began after %d was issued",
				r.life.name(), ranges[0].Start, r.tag.name, r.above)
		}
		if len(ranges) > 1 && w.ordering.promised[r.tag.name] { // it may be loose by now, and served from memory
			w.fail("%s serves a request for %s, which is strict, from %v", r.life.name(), r.tag.name, ranges)
		}
	}
	r.tag.highest = max(r.tag.highest, ranges[len(ranges)-1].End-1)
}
