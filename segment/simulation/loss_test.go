package simulation_test

import (
	"encoding/json"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
)

// lose lets JetStream lose marks that it acknowledged, where the world does so, and an operator resume the registry.
// Where several workers run, that is at once: package lineage lets none of them load in between. One worker that knows
// what it has loaded needs no stop.
func (w *world) lose() {
	old := w.js.bucket
	if w.conf.loss == kept || old == nil || len(old.entries[era.Key].Value) == 0 || len(w.js.past) == 0 {
		return
	}
	w.owed = max(w.owed, old.highest())
	if w.conf.loss == wiped {
		w.js.bucket = &bucket{
			old.StreamConfig, time.Now(), old.last + 1_000_000, map[string]buckets.Entry{}, time.Time{},
		}
		w.resume()
	} else {
		w.js.bucket = w.js.past[w.rnd.IntN(len(w.js.past))]
		w.after(w.chance(8*time.Second), w.resume)
	}
	w.js.past = nil
	w.log("the marks are %v, and the bucket is at revision %d", w.conf.loss, w.js.bucket.last)
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

// resume begins an era above all marks that were lost.
func (w *world) resume() {
	id, err := w.eras().Resume(w.owed, 0, w.js.bucket.created)
	if w.owed == 0 || err != nil {
		return
	}
	w.owed = 0
	w.identity.Store(&id)
	w.js.put(w.js.bucket.with(buckets.Entry{Key: era.Key, Value: id.Encode()}))
	w.log("the registry is resumed")
}

// highest returns the highest mark as it is written.
func (b *bucket) highest() (mark int64) {
	for _, e := range b.entries {
		var tag struct{ Mark int64 }
		_ = json.Unmarshal(e.Value, &tag)
		mark = max(mark, tag.Mark)
	}
	return mark
}

// eras returns the identity that workers know.
func (w *world) eras() (id era.Identity) {
	if known := w.identity.Load(); known != nil {
		id = *known
	}
	return id
}

// start is where an operator lets a tag begin: where marks may be lost, far above all that was loaded, since the
// command may land late.
func (w *world) start(t *tag, at int64) int64 {
	switch {
	case w.conf.loss == kept:
		return at
	case w.conf.kind == marksAlone:
		return t.top + 1_000_000
	}
	return t.top + 1000
}
