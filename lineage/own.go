package lineage

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

// write writes the own key, by compare-and-set from what this worker wrote last. What it finds instead may prove that
// the bucket went back.
func (w *Member) write(ctx context.Context, v *view, ended bool) error {
	m := &w.m
	if m.Flight.Token != "" { // of a write whose outcome is unknown
		if err := w.compare(ctx, v); err != nil || w.isProven(v) {
			return err
		}
	}
	for range 3 {
		if err := w.chooseKey(ctx); err != nil {
			return err
		}
		again, err := w.send(ctx, v, ended)
		if err != nil || !again {
			return err
		}
	}
	return errNewerRead
}

// isProven reports whether an incident names what this worker has just proved.
func (w *Member) isProven(v *view) bool {
	return v.id.Incident != nil && v.id.Incident.ID == w.m.Incident && w.m.Key == ""
}

// send sends one write of the own key. It reports whether to try again.
func (w *Member) send(ctx context.Context, v *view, ended bool) (again bool, err error) {
	m := &w.m
	if m.Flight.Token == "" {
		m.Flight = flight{newID(), w.cfg.Bucket.Known()}
	}
	if m.Incident != "" { // what is known above the identity may be of another history
		m.Flight.Highest = min(m.Flight.Highest, v.revision)
	}
	w.noteToDisk()
	o := ownKey{
		Version: version, Token: m.Flight.Token, Name: w.cfg.Name(), Time: w.cfg.Now().UTC(), Era: m.Era,
		Incident: m.Incident, Ended: ended, Volatile: m.Volatile, Taken: m.Taken,
	}
	var revision uint64
	if m.Written.Revision == 0 {
		revision, err = w.cfg.Bucket.Create(ctx, ownPrefix+m.Key, encode(o))
	} else {
		revision, err = w.cfg.Bucket.UpdateSoon(ctx, ownPrefix+m.Key, encode(o), m.Written.Revision)
	}
	switch {
	case err == nil:
		w.landed(revision)
		return false, nil
	case errors.Is(err, buckets.ErrRevision), errors.Is(err, buckets.ErrKeyExists):
		incident := m.Incident
		err = w.compare(ctx, v)
		return err == nil && m.Incident == incident, err
	}
	return false, fmt.Errorf("lineage: the own key of this worker cannot be written: %w", err)
}

// landed takes in that the last write has landed.
//
// Law: the journal has it before anything is loaded that rests on it. So at the next start the entry of an earlier time
// is recognized as such.
func (w *Member) landed(revision uint64) {
	w.m.Written, w.m.Flight = written{w.m.Flight.Token, revision}, flight{}
	w.noteToDisk() //mutant:landed
}

// compare reads the own key and takes in what it shows. A foreign entry is proved by a write of that very entry.
func (w *Member) compare(ctx context.Context, v *view) error {
	m := &w.m
	if m.Key == "" {
		return nil
	}
	e, err := w.cfg.Bucket.Get(ctx, ownPrefix+m.Key)
	if err != nil && !errors.Is(err, buckets.ErrNoKey) {
		return fmt.Errorf("lineage: the own key of this worker cannot be read: %w", err)
	}
	var o *ownKey
	if err == nil {
		found, _ := decodeOwn(e.Value) // a damaged one is not this worker's
		o = &found
	}
	switch m.own(o, e.Revision) {
	case landed:
		w.landed(e.Revision)
	case unwritten:
		if o != nil { // another worker was faster
			m.leaveKey()
		}
	case taken:
		below, err := w.lift(ctx)
		if err != nil {
			return err
		}
		m.leaveKey()
		if below != "" {
			return w.prove(ctx, v, finding{cause: WentBack, why: below}, time.Time{})
		}
	case foreign:
		return w.proveForeign(ctx, v, o, e)
	}
	return nil
}

// proveForeign proves that the own key is another one than was written last, by a compare-and-set from what was read.
// The entry stays as it was found.
func (w *Member) proveForeign(ctx context.Context, v *view, o *ownKey, e buckets.Entry) (err error) {
	f := finding{cause: WentBack, why: "the entry that this worker writes into the bucket of marks is gone"}
	var state time.Time
	if o == nil {
		gone := ownKey{Version: version, Token: newID(), Name: w.cfg.Name(), Ended: true}
		_, err = w.cfg.Bucket.Create(ctx, ownPrefix+w.m.Key, encode(gone))
	} else {
		_, err = w.cfg.Bucket.Update(ctx, ownPrefix+w.m.Key, e.Value, e.Revision)
		if state = o.Time; !state.IsZero() {
			f.why = fmt.Sprintf("the entry that this worker writes into the bucket of marks is that of %s, and was "+
				"written since", state.UTC().Format(time.RFC3339))
		}
	}
	if errors.Is(err, buckets.ErrRevision) || errors.Is(err, buckets.ErrKeyExists) {
		return errNewerRead // what was read is old
	}
	if err != nil {
		return fmt.Errorf("lineage: the own key of this worker cannot be compared: %w", err)
	}
	if _, unfit := w.cfg.Bucket.Look(ctx); state.IsZero() && errors.Is(unfit, buckets.ErrUnfit) { // which is why
		f.cause, f.why = Exposed, unfit.Error()
	}
	return w.prove(ctx, v, f, state)
}

// stateFound returns the time inside the own key, zero if there is none.
func (w *Member) stateFound(ctx context.Context) time.Time {
	if w.m.Key == "" {
		return time.Time{}
	}
	e, err := w.cfg.Bucket.Get(ctx, ownPrefix+w.m.Key)
	if err != nil {
		return time.Time{}
	}
	o, _ := decodeOwn(e.Value) // a damaged one has none
	return o.Time
}

// chooseKey chooses a new key if this worker has none: that of a volatile worker which ended or was silent for an
// hour if this worker is volatile, too. So the number of keys is bounded by the workers that run within an hour.
func (w *Member) chooseKey(ctx context.Context) error {
	m := &w.m
	if m.Key != "" {
		return nil
	}
	if !m.Volatile || m.Incident != "" { // a restore may have made the key of one who runs look like one that ended
		m.Key = newID()
		return nil
	}
	all, err := w.cfg.Bucket.AllOwn(ctx, ownPrefix)
	if err != nil {
		return fmt.Errorf("lineage: the own keys of workers cannot be listed: %w", err)
	}
	m.Key = newID()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		o, err := decodeOwn(all[key].Value)
		//mutant:take-over
		if err != nil || !o.Volatile || !o.Ended && w.cfg.Now().Sub(o.Time) < silence {
			continue
		}
		m.Key, m.Written = strings.TrimPrefix(key, ownPrefix), written{Revision: all[key].Revision}
		m.Taken = append(slices.Clone(o.Taken[max(0, len(o.Taken)+1-mostTaken):]), o.Token)
		break
	}
	return nil
}

// noteToDisk puts the memory into the journal. Where that fails, this worker continues as a volatile one.
//
// Law: the key of a data directory is written only with tokens that are on its disk. So a journal that misses writes
// names a key that misses the same writes, and proves nothing by itself at the next start.
func (w *Member) noteToDisk() {
	w.m.Highest = w.cfg.Bucket.Known()
	if w.m.Volatile || w.journal.write(w.m) {
		return
	}
	w.cfg.JournalAlarm(fmt.Sprintf("%s cannot be written: %v; this worker continues without it, and after a "+
		"restart it does not notice whether the marks went back meanwhile: repair the data directory, and restart it",
		journalName, w.journal.fault))
	token := w.m.Flight
	w.m.Volatile = true
	if token.Token != "" { // not sent yet
		w.m.leaveKey()
		w.m.Key, w.m.Flight = newID(), token
	}
}
