package simulation_test

import (
	"encoding/json"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
)

// lose lets JetStream lose marks that it acknowledged, where the world does so, and an operator resume the registry:
// package lineage lets nobody load in between.
func (w *world) lose() {
	old := w.js.bucket
	if w.conf.loss == kept || old == nil || len(old.entries[era.Key].Value) == 0 {
		return
	}
	next := &bucket{old.StreamConfig, time.Now(), old.last + 1_000_000, map[string]buckets.Entry{}, time.Time{}}
	if w.conf.loss == setBack {
		if len(w.js.past) == 0 {
			return
		}
		next = w.js.past[w.rnd.IntN(len(w.js.past))]
	}
	id, err := w.eras().Resume(old.highest(), 0, next.created)
	if err != nil {
		return
	}
	w.identity.Store(&id)
	w.js.bucket, w.js.past = next.with(buckets.Entry{Key: era.Key, Value: id.Encode()}), nil
	w.log("the marks are %v, and the bucket is resumed at revision %d", w.conf.loss, w.js.bucket.last)
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
