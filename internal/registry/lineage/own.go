package lineage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
)

// silence is how long the key of a volatile worker is left to it after its last write.
const silence = time.Hour

// An ownEntry is the value of a key that one worker writes. Only its owner changes it, but for a volatile one that
// ended or was silent for an hour: another volatile worker may take that over.
type ownEntry struct {
	Version  int       `json:"version"`
	Token    string    `json:"token"`          // random, fresh with each write
	Name     string    `json:"name"`           // of the worker, for people
	Process  string    `json:"process"`        // of the owner; random, one per process
	Time     time.Time `json:"time"`           // of the write, by the worker's clock
	Since    time.Time `json:"since,omitzero"` // of the write before; zero for none
	Era      string    `json:"era"`
	Incident string    `json:"incident,omitempty"` // that the owner has joined
	Ended    bool      `json:"ended,omitempty"`    // the owner stopped cleanly
	Volatile bool      `json:"volatile,omitempty"` // the owner has no data directory
	// Taken are the tokens that former owners wrote last, so that one who lives after all recognizes its own; and those
	// that the owner's journal named when it failed. An empty one means nothing.
	Taken []string `json:"taken,omitempty"`
}

// mostTaken bounds Taken. An owner silent for longer than that many owners of its key stops its registry.
const mostTaken = 16

func decodeOwn(value []byte) (o ownEntry, err error) {
	if err = json.Unmarshal(value, &o); err == nil && o.Version != Version {
		err = fmt.Errorf("it is of version %d", o.Version)
	}
	if err != nil {
		return ownEntry{}, fmt.Errorf("lineage: an own key is damaged: %w", err)
	}
	return o, nil
}

// An own is this worker's own key in the bucket, and what the worker remembers with it. Whoever makes a check uses it.
//
// Invariant: the key is written by compare-and-set from what this worker wrote last, and each token of a data
// directory is on its disk before it is sent, or its entry names the tokens that are. So any other entry is a finding.
// A journal that was put back, or that misses the writes after its disk failed, proves nothing by itself at the next
// start.
type own struct {
	cfg     *Config
	floors  *floors
	journal *journal
	memory
}

// foundAt returns a time at which the bucket was in the state that was found, or before; zero if it is not known. o is
// the own key as found, nil for none. isRemade says that the stream is another one than the last thorough check saw.
//
// Law: a resume raises the marks by what may have been loaded since then, so the time must not be too late. An entry
// older than one known to have landed is of the state found, or is a late copy of a write, which landed on the one
// before: so that one is of the state found. The last entry, and one whose outcome is unknown, may have landed after
// the bucket went back. Those show a time only where a check has seen the stream since an earlier one landed, or where
// the data directory went back with the bucket. A clock may have been set back between two writes.
func (k *own) foundAt(o *ownEntry, revision uint64, isRemade bool) time.Time {
	switch {
	case o == nil || o.Token == "":
	case k.copied:
		return o.Time
	case k.sent(o.Token):
		if isRemade {
			return k.Looked
		}
	case o.Volatile && o.Process != k.cfg.Process: // another worker took the key over, perhaps since
	case k.memory.own(o, revision) != foreign:
	case o.Time.Before(o.Since):
		return o.Time
	default:
		return o.Since
	}
	return time.Time{}
}

// remembers reports whether the process remembers a registry, or did before its journal was damaged.
func (k *own) remembers() bool { return !k.isFresh() || k.journal.damaged != nil }

// write writes the own key. identity is the revision of the identity that the write rests on. What is there instead of
// the last write may be a [finding].
func (k *own) write(ctx context.Context, identity uint64, ended bool) error {
	if k.Flight.Token != "" { // of a write whose outcome is unknown
		if err := k.compare(ctx); err != nil {
			return err
		}
	}
	for range 3 {
		if err := k.choose(ctx); err != nil {
			return err
		}
		err := k.send(ctx, identity, ended)
		if err == nil {
			return nil
		}
		if !isRefused(err) {
			return fmt.Errorf("lineage: the own key of this worker cannot be written: %w", err)
		}
		if err := k.compare(ctx); err != nil {
			return err
		}
	}
	return errNewerRead
}

// send sends one write of the own key.
func (k *own) send(ctx context.Context, identity uint64, ended bool) (err error) {
	if k.Flight.Token == "" {
		k.Flight = flight{newID(), k.cfg.Bucket.Known(), k.cfg.Now().UTC()}
	}
	if k.Incident != "" { // what is known above the identity may be of another history
		k.Flight.Highest = min(k.Flight.Highest, identity)
	}
	k.save()
	o := ownEntry{
		Version: Version, Token: k.Flight.Token, Name: k.cfg.Name(), Process: k.cfg.Process,
		Time: k.cfg.Now().UTC(), Since: k.Written.Sent, Era: k.Era,
		Incident: k.Incident, Ended: ended, Volatile: k.Volatile, Taken: k.Taken,
	}
	var revision uint64
	if k.Written.Revision == 0 {
		revision, err = k.cfg.Bucket.Create(ctx, ownPrefix+k.Key, encode(o))
	} else {
		revision, err = k.cfg.Bucket.UpdateSoon(ctx, ownPrefix+k.Key, encode(o), k.Written.Revision)
	}
	if err == nil {
		k.landed(revision)
	}
	return err
}

// landed takes in that the last write has landed.
//
// Law: the journal has it before anything is loaded that rests on it. So at the next start the entry of an earlier time
// is recognized as such.
func (k *own) landed(revision uint64) {
	k.Written, k.Flight = written{k.Flight.Token, revision, k.Flight.Sent}, flight{}
	k.save() //mutant:landed
}

// read reads the own key; nil if there is none.
func (k *own) read(ctx context.Context) (o *ownEntry, e buckets.Entry, err error) {
	if k.Key == "" {
		return nil, e, nil
	}
	e, err = k.cfg.Bucket.Get(ctx, ownPrefix+k.Key)
	switch {
	case err == nil:
		found, _ := decodeOwn(e.Value) // a damaged one is not this worker's, and has no time
		return &found, e, nil
	case errors.Is(err, buckets.ErrNoKey):
		return nil, e, nil
	}
	return nil, e, fmt.Errorf("lineage: the own key of this worker cannot be read: %w", err)
}

// compare reads the own key and takes in what it shows. An entry that another history has left is a [finding].
func (k *own) compare(ctx context.Context) error {
	o, e, err := k.read(ctx)
	if err != nil || k.Key == "" {
		return err
	}
	switch k.memory.own(o, e.Revision) {
	case landed:
		k.landed(e.Revision)
	case unwritten:
		if o != nil { // another worker was faster
			k.leaveKey()
		}
	case taken:
		below, err := k.floors.lift(ctx)
		if below == "" && err != nil {
			return err
		}
		if k.leaveKey(); below != "" {
			return &finding{cause: WentBack, why: below}
		}
	case foreign:
		return k.disown(ctx, o, e)
	}
	return nil
}

// disown proves that the own key is another one than was written last, by a compare-and-set from what was read. The
// entry stays as it was found. It returns the finding.
func (k *own) disown(ctx context.Context, o *ownEntry, e buckets.Entry) (err error) {
	f := &finding{cause: WentBack, why: "the entry that this worker writes into the bucket of marks is gone"}
	if o == nil {
		gone := ownEntry{Version: Version, Token: newID(), Name: k.cfg.Name(), Ended: true}
		_, err = k.cfg.Bucket.Create(ctx, ownPrefix+k.Key, encode(gone))
	} else {
		_, err = k.cfg.Bucket.Update(ctx, ownPrefix+k.Key, e.Value, e.Revision)
		f.state = k.foundAt(o, e.Revision, false)
	}
	if isRefused(err) {
		return errNewerRead
	}
	if err != nil {
		return fmt.Errorf("lineage: the own key of this worker cannot be compared: %w", err)
	}
	if o != nil {
		f.why = fmt.Sprintf("the entry that this worker writes into the bucket of marks is that of %s, and was "+
			"written since", o.Time.UTC().Format(time.RFC3339))
	} else if _, unfit := k.cfg.Bucket.Look(ctx); errors.Is(unfit, buckets.ErrUnfit) { // which is why it is gone
		f.cause, f.why = Exposed, unfit.Error()
	}
	return f
}

// choose chooses a new key if this worker has none: that of a volatile worker which ended or was silent for an hour if
// this worker is volatile, too. So the number of keys is bounded by the workers that run within an hour.
func (k *own) choose(ctx context.Context) error {
	if k.Key != "" {
		return nil
	}
	if !k.Volatile || k.Incident != "" { // a restore may have made the key of one who runs look like one that ended
		k.Key = newID()
		return nil
	}
	all, err := k.cfg.Bucket.AllOwn(ctx, ownPrefix)
	if err != nil {
		return fmt.Errorf("lineage: the own keys of workers cannot be listed: %w", err)
	}
	k.Key = newID()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		o, err := decodeOwn(all[key].Value)
		//mutant:take-over
		if err != nil || !o.Volatile || !o.Ended && k.cfg.Now().Sub(o.Time) < silence {
			continue
		}
		k.Key, k.Written = strings.TrimPrefix(key, ownPrefix), written{Revision: all[key].Revision}
		k.Taken = append(slices.Clone(o.Taken[max(0, len(o.Taken)+1-mostTaken):]), o.Token)
		break
	}
	return nil
}

// save puts the memory into the journal. Where that fails, this worker goes on without the journal.
//
// Law: the journal then keeps naming the tokens of this moment, while the key gets others. Each entry from now on names
// those as taken, so the next life recognizes its key, and takes another one.
func (k *own) save() {
	k.Highest = k.cfg.Bucket.Known()
	if k.journal.fault != nil || k.journal.write(k.memory) {
		return
	}
	k.Taken = append(k.Taken, k.Written.Token, k.Flight.Token) //mutant:journal-fails
	k.cfg.Serving.JournalAlarm(fmt.Sprintf("%s cannot be written: %v; this worker continues without it, and after a "+
		"restart it does not notice whether the marks went back until then: repair the data directory, and restart "+
		"this worker", journalName, k.journal.fault))
}
