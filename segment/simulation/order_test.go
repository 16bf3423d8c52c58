package simulation_test

import (
	"math/rand/v2"
	"time"

	"github.com/natsid/natsid/segment"
)

// An ordering is which tags are made strict. It draws from chances of its own, so that schedules without strict tags
// stay as they are.
type ordering struct {
	rnd       *rand.Rand
	strict    map[string]bool
	requests  uint64 // that were judged
	fromLoads uint64 // of those, the ones that were served
	passed    int    // messages that passed a load on
}

// mayOrder reports whether the world has strict tags: some with marks that lose nothing do.
func (w *world) mayOrder(seed uint64) bool {
	return w.conf.loss == kept && seed%4 == 0
}

// order decides which tags are strict: they are made so, and rows of others are loose.
func (w *world) order() {
	o := &ordering{rnd: rand.New(rand.NewPCG(w.seed, 17)), strict: map[string]bool{}}
	w.ordering = o
	for _, name := range w.names[:1+o.rnd.IntN(len(w.names))] {
		o.strict[name] = true
	}
	w.log("strict: %v", o.strict)
}

func (o *ordering) chance(d time.Duration) time.Duration {
	return time.Duration(1 + o.rnd.Int64N(int64(d)))
}

// isStrict reports whether a tag is made strict.
func (w *world) isStrict(name string) bool { return w.ordering != nil && w.ordering.strict[name] }

// floor returns the ID above which a request that begins now must get all of its own: the highest of a strict tag that
// any ended request got.
//
// Judging each request against the highest so far judges every pair: of two requests, one began after the other ended.
func (w *world) floor(t *tag) int64 {
	if !w.isStrict(t.name) {
		return 0
	}
	w.ordering.requests++
	return t.highest
}

// judgeOrder takes in the IDs that a request got, which has just ended.
func (r *request) judgeOrder(ranges []segment.Range) {
	w := r.life.world
	if w.isStrict(r.tag.name) {
		w.ordering.fromLoads++
		if ranges[0].Start <= r.above {
			w.fail("%s issues %d of %s, which is strict, in a request that began after %d was issued",
				r.life.name(), ranges[0].Start, r.tag.name, r.above)
		}
		if len(ranges) > 1 {
			w.fail("%s serves a request for %s, which is strict, from %v", r.life.name(), r.tag.name, ranges)
		}
	}
	r.tag.highest = max(r.tag.highest, ranges[len(ranges)-1].End-1)
}
