package workerid_test

import (
	"maps"
	"time"

	"github.com/natsid/natsid/workerid"
)

// Events of a registry that loses its state, and the steps that docs/operations.md asks of operators.

// lose loses the registry's state, at any moment: as a whole or in part. Or it is
// replaced or restored, as operators do it.
func (w *world) lose() {
	w.awake() // one that cannot be asked may issue
	switch what := w.rnd.IntN(12); {
	case what <= 2 || len(w.backups) == 0:
		w.wipe(true, true)
	case what == 3:
		w.wipe(true, false)
	case what == 4:
		w.wipe(false, true)
	case what == 5:
		w.change(func(r *registryState) { r.deployment = workerid.Deployment{} })
		w.log("the registry's deployment is lost")
	case what == 6:
		n := w.rnd.IntN(w.conf.Layout.Workers())
		w.change(func(r *registryState) { delete(r.records, n) })
		w.log("record %d is lost", n)
	case what == 7:
		w.replace()
		return
	case what <= 9:
		w.swap()
		return
	default:
		w.restore()
		return
	}
	if l := w.machines[w.rnd.IntN(len(w.machines))].life; w.one(2) {
		w.crash(l)
		w.again(l.machine)
	}
}

// wipe creates the registry, or a bucket of it, again.
func (w *world) wipe(history, workers bool) {
	if history {
		w.reg = registryState{
			revision: w.newRevision(), records: map[int]workerid.Record{}, heartbeats: w.reg.heartbeats,
		}
		w.past, w.backups = nil, nil
	}
	if workers {
		w.reg.heartbeats = map[int]workerid.Heartbeat{}
	}
	w.log("registry created again: history %t, workers %t", history, workers)
}

// replace deletes both buckets while no worker runs, and starts all again.
func (w *world) replace() {
	for _, m := range w.machines {
		if w.one(3) {
			w.crash(m.life)
		} else {
			w.stop(m)
		}
		if m.life.dead || !m.life.clean {
			m.disk = nil
		}
		m.life.dead = true
	}
	for _, all := range w.generators { // none is left that could issue, or resume
		for _, h := range all {
			h.Close()
			h.crashed = false
		}
	}
	w.down, w.stale = [buckets]bool{}, false
	tick := time.Duration(w.conf.Layout.Unit) * time.Millisecond
	w.rest(20*time.Second + 3*tick) // what is under way lands up to 20 s late
	w.wipe(true, true)
	for _, m := range w.machines {
		m.start()
		w.rest(0)
	}
}

// restore restores the registry from a backup while workers run.
func (w *world) restore() {
	revision := w.reg.revision
	w.down = [buckets]bool{true, true}
	w.log("registry down, to be restored")
	w.rest(chance(w.rnd, 10*time.Second))
	w.reg = w.backups[w.rnd.IntN(len(w.backups))]
	w.reg.heartbeats = map[int]workerid.Heartbeat{}
	w.past, w.backups, w.down, w.stale = nil, nil, [buckets]bool{}, false
	w.log("registry restored from revision %d, was at %d", w.reg.revision, revision)
}

// swap puts another registry in the place of this one, between any two calls of the
// workers, and later the first one again: an old copy of it, or an empty one.
func (w *world) swap() {
	for range 1 + w.rnd.IntN(4) {
		other, revision := w.aside, w.reg.revision
		switch {
		case len(other.records) > 0 && !w.one(4):
		case w.one(3) || len(w.backups) == 0:
			other = registryState{revision: w.newRevision(), records: map[int]workerid.Record{}}
			other.heartbeats = map[int]workerid.Heartbeat{}
		default:
			other = w.backups[w.rnd.IntN(len(w.backups))]
			other.heartbeats = map[int]workerid.Heartbeat{}
		}
		w.aside, w.reg, w.past, w.backups = w.reg, other, nil, nil
		w.log("registry swapped for another at revision %d, was at %d", w.reg.revision, revision)
		w.awake()
		w.rest(chance(w.rnd, pick(w.rnd, time.Second, 5*time.Second)))
	}
}

// rest lets time pass.
func (w *world) rest(d time.Duration) {
	d += chance(w.rnd, time.Second)
	w.mu.Unlock()
	time.Sleep(d)
	w.mu.Lock()
}

// newRevision is where a registry that is created again begins: at the time in µs. Package internal/registry/buckets
// promises and tests it; a write under way that lands in the new registry could hit a foreign record otherwise.
func (w *world) newRevision() uint64 {
	return w.reg.revision + 1_000_000
}

// move creates the registry again with its content: all revisions are new.
func (w *world) move() {
	w.past, w.backups, w.reg.revision, w.reg.records = nil, nil, w.newRevision(), maps.Clone(w.reg.records)
	for n := range w.conf.Layout.Workers() {
		if r, ok := w.reg.records[n]; ok {
			w.reg.revision++
			r.Revision = w.reg.revision
			w.reg.records[n] = r
		}
	}
	w.log("registry moved to revision %d", w.reg.revision)
}

// agree gives all workers the registry's layout. If it has none, or records of both, it is replaced.
func (w *world) agree() {
	if len(w.layouts) == 1 {
		return
	}
	right, mixed := w.layoutOf(w.reg.deployment), w.reg.deployment.ID == ""
	for _, r := range w.reg.records {
		mixed = mixed || w.layoutOf(r.Deployment) != right
	}
	for _, m := range w.machines {
		if m.layout != right {
			w.stop(m)
			m.layout = right
		}
	}
	if mixed {
		w.replace()
	}
}

// layoutOf returns the layout of a deployment; the first if it is empty.
func (w *world) layoutOf(d workerid.Deployment) int {
	for i, l := range w.layouts {
		of := workerid.DeploymentOf(l)
		if d.Layout == of.Layout && d.Epoch == of.Epoch && d.Unit == of.Unit {
			return i
		}
	}
	return 0
}
