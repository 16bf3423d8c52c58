package witness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/buckets"
)

func (w *Witness) key() string { return prefix + w.journal.Witness }

// errOtherRegistry says that the bucket is another one than this worker's data directory remembers.
var errOtherRegistry = errors.New("witness: the bucket of marks is not the one that this worker's data directory " +
	"remembers: it was made again, or this worker was moved to another NATS; check `natsid tag list`, raise or " +
	"create all tags above every ID in use, and run `natsid store confirm`")

// settle takes over the identity of the bucket, and reports whether the witness belongs into it. A bucket without
// identity, as one that was made again, has none: what may be loaded from it is its operator's word.
func (w *Witness) settle(ctx context.Context, now bool) (there bool, err error) {
	id, confirmed, err := w.cfg.Registry(ctx, now)
	if err != nil {
		return false, fmt.Errorf("witness: the identity of the bucket of marks cannot be read: %w", err)
	}
	j := &w.journal
	switch {
	case id == "":
		w.strange = w.strange || j.Registry != "" && !w.homeless
		w.homeless = true
		w.forgetOthers()
		return false, nil
	case j.Registry != "" && j.Registry != id && confirmed.IsZero():
		w.meetOther(true)
		return false, errOtherRegistry
	case j.Registry != "" && j.Registry != id:
		w.newWitness("")
		w.forgetOthers()
		w.strange, w.orphan = true, false
	}
	w.meetOther(false)
	w.homeless, j.Registry = false, id
	w.mu.Lock()
	defer w.mu.Unlock()
	w.registry = id
	return true, nil
}

// meetOther refuses segments while the bucket is another than the one that this worker remembers.
func (w *Witness) meetOther(other bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.other == other {
		return
	}
	w.other = other
	switch {
	case other:
		w.cfg.Refuse(errOtherRegistry)
		w.cfg.Alarm(errOtherRegistry.Error())
	case !w.held:
		w.cfg.Allow()
	}
}

// write writes the witness, by compare-and-set on what this worker remembers of it. An acknowledgement that was lost is
// found by the token. If the bucket holds an older witness, or none, write replaces that, and the acknowledged
// replacement is the proof that the bucket went back.
func (w *Witness) write(ctx context.Context, answer string, ended bool) error {
	if there, err := w.settle(ctx, false); !there || err != nil {
		return err
	}
	if err := w.inherit(ctx); err != nil {
		return err
	}
	w.prepare(answer, ended)
	for {
		if w.revision > 0 {
			revision, err := w.cfg.Bucket.UpdateSoon(ctx, w.key(), encode(w.me), w.revision)
			if err == nil {
				w.land(revision)
				return nil
			}
			if errors.Is(err, buckets.ErrSilent) {
				continue // it is sent again, as the next check would
			}
			if !errors.Is(err, buckets.ErrRevision) {
				return fmt.Errorf("witness: the witness of this worker cannot be written: %w", err)
			}
		}
		done, err := w.readBack(ctx)
		if done || err != nil {
			return err
		}
	}
}

// prepare makes the next write, and notes its token in the journal before it is sent. A write whose outcome is open is
// sent again with its token.
func (w *Witness) prepare(answer string, ended bool) {
	if !w.open || w.me.Answer != answer || w.me.Gap != w.gap || w.me.Owes != w.owes ||
		w.me.Ended != ended {
		w.me.Counter++
		w.me.Token = newToken()
	}
	w.me.Name, w.me.Time, w.me.Answer, w.me.Ended = w.cfg.Name(), time.Now().UTC(), answer, ended
	w.me.Gap, w.me.Owes = w.gap, w.owes
	w.open = true
	w.note()
}

// maxPending bounds the writes of open outcome that a journal names: one for each start without JetStream.
const maxPending = 64

// note puts the state into the journal, before a write is sent. Where the disk fails the worker serves on.
func (w *Witness) note() {
	j := &w.journal
	j.Counter, j.Life, j.After = w.me.Counter, w.me.Life, w.me.After
	if !w.me.Ended {
		j.Floors = ""
	}
	if w.open && !slices.Contains(j.Pending, w.me.Token) {
		j.Pending = append(j.Pending[max(0, len(j.Pending)+1-maxPending):], w.me.Token)
	}
	copied := *j
	copied.Pending = slices.Clone(j.Pending)
	w.toDisk(copied.write)
}

// inherit takes over the witness of a worker without data directory that stopped cleanly, if this one has none either
// and no witness yet: so their number is bounded by the workers that run at once.
func (w *Witness) inherit(ctx context.Context) error {
	if !w.me.Volatile || w.me.Counter > 0 {
		return nil
	}
	all, err := w.cfg.Bucket.AllOwn(ctx, prefix)
	if err != nil {
		return fmt.Errorf("witness: the witnesses cannot be listed: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		r, err := decodeRecord(all[key].Value)
		if err == nil && r.Ended && r.Volatile {
			w.journal.Witness, w.revision = strings.TrimPrefix(key, prefix), all[key].Revision
			w.me.Counter, w.me.After, w.inherited = r.Counter, r.Life, true
			return nil
		}
	}
	return nil
}

// land takes in that the last write has landed, and notes it in the journal. Law: from then on the witness before it
// is a proof that the bucket went back, also at the next start of a worker that was killed.
func (w *Witness) land(revision uint64) {
	w.revision, w.open, w.inherited = revision, false, false
	w.journal.Token, w.journal.Pending = w.me.Token, nil
	w.note()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.id = w.journal.Witness
}

// readBack finds out why a compare-and-set was refused. It reports whether the write has landed.
func (w *Witness) readBack(ctx context.Context) (done bool, err error) {
	e, err := w.cfg.Bucket.Get(ctx, w.key())
	if errors.Is(err, buckets.ErrNoKey) {
		return w.foundNone(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("witness: the witness of this worker cannot be read: %w", err)
	}
	r, err := decodeRecord(e.Value)
	update := func() (uint64, error) { return w.cfg.Bucket.Update(ctx, w.key(), encode(w.me), e.Revision) }
	switch j := &w.journal; {
	case errors.Is(err, errDamaged):
		return w.replace(nil, update)
	case err != nil:
		return false, err
	case r.Token == w.me.Token:
		w.land(e.Revision)
		return true, nil
	case r.Token == j.Token || slices.Contains(j.Pending, r.Token):
		if w.revision == 0 {
			w.previous = &r
		}
		w.revision = e.Revision
		return false, nil
	case w.inherited: // another worker was faster
		w.newWitness("")
		w.renew()
		return false, nil
	case r.Retired != "":
		w.retired(r)
		return false, nil
	case r.Counter >= w.me.Counter:
		w.copied()
		return false, nil
	}
	return w.replace(&r, update)
}

// renew gives the write under way to a new witness.
func (w *Witness) renew() {
	w.me.Counter, w.me.Token, w.open = 1, newToken(), true
	w.note()
}

// copied begins a witness of its own: another process has written the old one, so it uses a copy of the data directory.
func (w *Witness) copied() {
	w.cfg.Log.Error("another process writes this worker's witness: the data directory was copied, or a file of it was "+
		"restored; this worker begins a new one. Give each worker a data directory of its own", "witness", w.key())
	w.newWitness(lost)
	w.renew()
}

// foundNone creates the witness. That is a proof if it was there before.
func (w *Witness) foundNone(ctx context.Context) (done bool, err error) {
	create := func() (uint64, error) { return w.cfg.Bucket.Create(ctx, w.key(), encode(w.me)) }
	if was := w.journal.Token; was != "" {
		// A bucket that was made again has no witness either, but its marks are not those of an earlier time.
		if there, err := w.settle(ctx, true); !there || err != nil {
			return err == nil, err
		}
		if w.journal.Token == was {
			return w.replace(nil, create)
		}
		w.renew() // a confirmed bucket that took the place of the old one
	}
	revision, err := create()
	if errors.Is(err, buckets.ErrKeyExists) {
		return false, nil // an own write that was not acknowledged
	}
	if err != nil {
		return false, fmt.Errorf("witness: the witness of this worker cannot be written: %w", err)
	}
	w.land(revision)
	return true, nil
}

// replace writes the witness over what the bucket has. If that is acknowledged the bucket went back.
func (w *Witness) replace(found *record, put func() (uint64, error)) (done bool, err error) {
	why := "the witness of this worker is gone, or damaged"
	if found != nil {
		why = fmt.Sprintf("the witness of this worker is that of %s, and was written since",
			found.Time.Format(time.RFC3339))
	}
	w.me.Owes = why
	revision, err := put()
	if errors.Is(err, buckets.ErrRevision) || errors.Is(err, buckets.ErrKeyExists) {
		return false, nil // what was read was old
	}
	if err != nil {
		return false, fmt.Errorf("witness: the witness of this worker cannot be written: %w", err)
	}
	w.orphan = false            // the gap says what is not known
	w.owe(why, w.me.gap(found)) // before land: the disk takes its time
	w.land(revision)
	return true, nil
}

// owe takes in a proof, and the gap in what this worker knows.
func (w *Witness) owe(why, gap string) {
	w.owes = why
	if gap != "" {
		w.gap = gap
	}
	w.WentBack(why)
}

// lostWithProcess is the gap of an answer by a process that came after one which took its floors with it.
const lostWithProcess = "its process ended before it had raised the marks above what it had loaded"

// succeed takes over what the process before this one left undone. i is the last incident.
//
// Law: a process that ended before it had answered an incident took its floors with it, unless it left them on disk. So
// did one that was killed or whose journal missed writes: the bucket may have gone back to just what that knows. Then
// this worker does not notice, and another one may only later: see [Witness.greet].
func (w *Witness) succeed(i incident) {
	p := w.previous
	w.previous = nil
	switch continued := p != nil && p.Life == w.me.Life; {
	case p == nil:
	case i.open() && p.Answer == i.ID, p.Owes != "" && continued:
		w.gap = p.Gap
	case p.Owes != "" || i.open() && !p.Ended && !continued:
		w.gap = lostWithProcess
	}
	if p != nil {
		w.orphan = !p.Ended && p.Life != w.me.Life
	}
	if p != nil && p.Owes != "" && !i.open() {
		w.owe(p.Owes, w.gap)
	}
	if w.moved {
		w.moved = false
		w.owe("the data directory, in which the marks are too, was copied or restored from a backup",
			"what was loaded after the copy was made is not known")
	}
}
