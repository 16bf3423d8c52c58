package witness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/buckets"
)

// silence is how old the last write of a witness is at least that is retired since its worker does not answer.
const silence = 24 * time.Hour

// retiredCounter is the counter of a retired witness: nothing that its owner wrote, and any worker has seen, is newer.
const retiredCounter = math.MaxInt64

// retire takes a witness from its owner, which did not answer, so that no worker waits for it again, and no later
// incident does. spare reports whether to leave it alone after all, as it is now.
//
// Law: the owner is not asked any more about a state of the bucket that has the retired witness. So it must have loaded
// nothing since then that this state lacks. What it loaded before is in that state: its marks cover it, or the raise
// that closed an incident. If the owner lives after all, it finds the witness taken at its next check, before it loads
// anything later than 3 s after its last one: then it begins another, and what it has in memory becomes holes. In a
// state of before, the witness is as it was, and must answer.
func (w *Witness) retire(ctx context.Context, id, name, why string, spare func(record) bool) error {
	e, err := w.cfg.Bucket.Get(ctx, prefix+id)
	missing := errors.Is(err, buckets.ErrNoKey)
	if err != nil && !missing {
		return fmt.Errorf("witness: a witness cannot be read: %w", err)
	}
	r, err := decodeRecord(e.Value) // empty if it is damaged or missing
	if r.Retired != "" || spare(r) || errors.Is(err, errNewer) {
		return nil
	}
	r = record{
		Version: version, Counter: retiredCounter, Token: newToken(), Name: name, Time: time.Now().UTC(),
		Life: newToken(), Ended: true, Volatile: r.Volatile, Retired: why,
	}
	if missing {
		_, err = w.cfg.Bucket.Create(ctx, prefix+id, encode(r))
	} else {
		_, err = w.cfg.Bucket.Update(ctx, prefix+id, encode(r), e.Revision)
	}
	if errors.Is(err, buckets.ErrRevision) || errors.Is(err, buckets.ErrKeyExists) {
		return nil // its owner has just written it
	}
	if err != nil {
		return fmt.Errorf("witness: a witness cannot be retired: %w", err)
	}
	w.cfg.Log.Warn("the witness of a worker that does not answer is retired: no worker waits for it any more",
		"worker", name, "witness", id, "reason", why)
	return nil
}

// retireSilent retires those of the workers which do not answer that have not written for long.
func (w *Witness) retireSilent(ctx context.Context, absent map[string]record) {
	silent := func(r record) bool { return !r.Time.IsZero() && time.Since(r.Time) > silence }
	for _, id := range slices.Sorted(maps.Keys(absent)) {
		if !silent(absent[id]) {
			continue
		}
		err := w.retire(ctx, id, absent[id].Name, "silent", func(now record) bool { return !silent(now) })
		if err != nil {
			w.cfg.Log.Debug("the next process that begins tries to retire the witness", "witness", id, "error", err)
		}
	}
}

// retireUnanswered retires the witnesses that have not answered an incident, once the raise of all tags that closed it
// covers what they had loaded.
func (w *Witness) retireUnanswered(ctx context.Context, i incident) error {
	w.mu.Lock()
	own := w.id
	w.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(i.Must)) {
		if id == own {
			continue
		}
		err := w.retire(ctx, id, i.Must[id], "incident "+i.ID, func(r record) bool { return r.Answer == i.ID })
		if err != nil {
			return err
		}
	}
	return nil
}

// retired takes in that others have retired this worker's witness.
func (w *Witness) retired(r record) {
	w.cfg.Log.Warn("the other workers have retired this worker's witness, since it did not answer; it begins a new "+
		"one, and loads anew", "reason", r.Retired)
	w.memory.Discard()
	w.newWitness("")
	w.renew()
}
