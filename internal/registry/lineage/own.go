package lineage

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
)

// ownPrefix begins the own key of each worker: the key in the bucket of marks that only this worker writes.
const ownPrefix = buckets.Own + ".w."

// Version is the version of the format of own keys and journals.
const Version = 1

// silence is how long a volatile worker, one without a data directory, keeps its key after its last write.
const silence = time.Hour

// An ownEntry is the value of an own key, which only one worker writes, its owner. A volatile worker, which has no data
// directory, may take over the key of another volatile worker that ended, or was silent for an hour.
type ownEntry struct {
	Version  int       `json:"version"`
	Token    string    `json:"token"`              // random, fresh with each write
	Name     string    `json:"name"`               // the worker's name, for people
	Time     time.Time `json:"time"`               // of the write, by the worker's clock
	Incident string    `json:"incident,omitempty"` // the incident that the owner has joined
	// Need is by how much a mark was below what the owner had loaded when it joined the incident: see [era.Incident].
	Need     int64 `json:"need,omitempty,string"`
	Ended    bool  `json:"ended,omitempty"`    // the owner stopped cleanly
	Volatile bool  `json:"volatile,omitempty"` // the owner has no data directory
	// Taken are the last tokens of former owners. A former owner that was only paused finds its token here, and so
	// learns that its key was taken over. If the owner's journal failed, Taken also has the tokens that the journal
	// named. Empty tokens have no meaning.
	Taken []string `json:"taken,omitempty"`
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: it has strings, numbers and times
	}
	return b
}

// newID returns a random text that no other call returns.
func newID() string { return rand.Text() }

// mostTaken bounds the tokens in Taken. A paused worker whose key had more owners since does not find its token
// there: it concludes that the bucket was set back, and stops the registry.
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

// An own is this worker's own key, which only it writes, and the worker's memory. Only the present check may use it.
//
// Invariant: the key is written only by compare-and-set on this worker's last write. With a data directory, each
// token is in the journal before it is sent. Once the journal cannot be written, each entry lists the journal's
// tokens in Taken. So an entry with another token shows that the bucket went back, unless the journal itself was
// restored.
type own struct {
	cfg     *Config
	loaded  Memory // set before the first load
	journal *journal
	memory
	need  int64  // by how much a mark was too low: see [ownEntry]
	noted string // the incident that the own key names; set once missing entries are restored
}

// remembers reports whether the process remembers a registry, or has a damaged journal, which named a registry.
func (k *own) remembers() bool { return !k.isFresh() || k.journal.damaged != nil }

// write writes the own key, which only this worker writes. The parameter identity is the revision of the entry that
// describes the registry, 0 for none. If the key does not hold this worker's last write, the error may be a [finding]:
// the bucket went back.
func (k *own) write(ctx context.Context, identity uint64, ended bool) error {
	isUnsure := k.Flight.Token != "" // the outcome of the last write is unknown
	for range 3 {
		if isUnsure {
			if err := k.compare(ctx); err != nil {
				return err
			}
		}
		if err := k.choose(ctx); err != nil {
			return err
		}
		err := k.send(ctx, identity, ended)
		if err == nil {
			return nil
		}
		if isUnsure = isRefused(err); !isUnsure {
			return fmt.Errorf("lineage: the own key of this worker cannot be written: %w", err)
		}
	}
	return errNewerRead
}

func (k *own) send(ctx context.Context, identity uint64, ended bool) (err error) {
	if k.Flight.Token == "" {
		k.Flight = flight{newID(), k.cfg.Bucket.Known()}
	}
	if k.Incident != "" { // higher revisions may be from before the bucket was set back
		k.Flight.Highest = min(k.Flight.Highest, identity)
	}
	k.save()
	o := ownEntry{
		Version: Version, Token: k.Flight.Token, Name: k.cfg.Name(), Time: k.cfg.Now().UTC(),
		Incident: k.Incident, Ended: ended, Volatile: k.Volatile, Taken: k.Taken,
	}
	if k.Incident != "" {
		o.Need = k.need
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

// landed records the revision of the write in flight.
//
// Law: the write is in the journal, on disk, before a load relies on it. So after a restart the worker recognizes an
// older entry.
func (k *own) landed(revision uint64) {
	k.Written, k.Flight = written{k.Flight.Token, revision}, flight{}
	k.save() //mutant:landed
}

// compare reads the own key, which only this worker writes, and remembers the revision if the entry is this worker's
// last write. Any other entry, as after a restore, is returned as a [finding], a proof that the bucket went back,
// unless another worker took the key over.
func (k *own) compare(ctx context.Context) error {
	if k.Key == "" {
		return nil
	}
	var o *ownEntry // nil if there is none
	e, err := k.cfg.Bucket.Get(ctx, ownPrefix+k.Key)
	switch {
	case err == nil:
		found, _ := decodeOwn(e.Value) // a damaged entry is not this worker's, and has no time
		o = &found
	case !errors.Is(err, buckets.ErrNoKey):
		return fmt.Errorf("lineage: the own key of this worker cannot be read: %w", err)
	}
	switch k.memory.own(o, e.Revision) {
	case landed:
		k.landed(e.Revision)
	case unwritten:
		if o != nil { // another worker was faster
			k.leaveKey()
		}
	case taken:
		f, err := k.low(ctx)
		if err != nil {
			return err
		}
		if k.leaveKey(); f != nil {
			return f
		}
	case foreign:
		return k.isForeign(ctx, o, e)
	}
	return nil
}

// isForeign returns the finding that the entry which only this worker writes is not its last write. Its proof is a
// compare-and-set that writes the entry back unchanged, or creates a missing one.
func (k *own) isForeign(ctx context.Context, o *ownEntry, e buckets.Entry) *finding {
	f, key := &finding{cause: era.WentBack}, ownPrefix+k.Key
	if o != nil {
		f.why = fmt.Sprintf("the entry that this worker writes into the bucket of marks is that of %s, and was "+
			"written since", o.Time.UTC().Format(time.RFC3339))
		f.confirm = func(ctx context.Context) error {
			_, err := k.cfg.Bucket.Update(ctx, key, e.Value, e.Revision)
			return err
		}
		return f
	}
	f.why = "the entry that this worker writes into the bucket of marks is gone"
	if _, unfit := k.cfg.Bucket.Look(ctx); errors.Is(unfit, buckets.ErrUnfit) { // its settings explain the loss
		f.cause, f.why = era.Exposed, unfit.Error()
	}
	f.confirm = func(ctx context.Context) error {
		gone := ownEntry{Version: Version, Token: newID(), Name: k.cfg.Name(), Ended: true}
		_, err := k.cfg.Bucket.Create(ctx, key, encode(gone))
		return err
	}
	return f
}

// choose chooses an own key, to be written by this worker alone, if it has none: a new one, or, for a worker without a
// data directory, that of another such worker that ended or was silent for an hour. So their keys do not accumulate.
func (k *own) choose(ctx context.Context) error {
	if k.Key != "" {
		return nil
	}
	if !k.Volatile || k.Incident != "" { // after a restore, a running worker's key may look ended
		k.Key = newID()
		return nil
	}
	all, err := k.cfg.Bucket.Latest(ctx, ownPrefix)
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

// save puts the memory into the journal. If that fails, this worker continues without the journal.
//
// Law: the journal on disk then has the tokens of old writes of the own key, while the key gets new ones. So each later
// entry lists the journal's tokens in Taken: after a restart the worker finds its key taken over, and chooses another
// one.
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

// saveFloors puts on disk how far this worker has loaded each tag.
func (k *own) saveFloors() { k.journal.writeFloors(k.loaded.Floors()) }

// beyond returns the need of an incident in which the marks are lost: this worker's highest floor, the ID up to which
// it loaded a tag, minus the highest era offset that it knows. A tag that no worker remembers may have been as high.
// It is 0 if the worker loaded nothing. Tags with a last number do not count. If a table has a row for each tag, only
// floors without rules count, as no entry can be restored from them.
//
// Law: the offset of the new era is at least the highest known one plus this need. So in the new era a tag without an
// entry begins above each of these floors.
func (k *own) beyond() (need int64) {
	for _, floor := range k.loaded.Floors() {
		if floor.Rules == nil || !floor.Rules.Bounded() && !k.cfg.Rows {
			need = max(need, floor.End)
		}
	}
	offset := int64(0)
	for _, known := range k.Eras {
		offset = max(offset, known)
	}
	return max(min(need, 1), need-offset)
}

// low returns a finding if a mark, a tag's next ID, is below the ID up to which this worker loaded the tag; else nil.
//
// Law: a listing is no proof, since a deposed leader shows old entries. An acknowledged write of an entry as it was
// read is a proof.
func (k *own) low(ctx context.Context) (*finding, error) {
	need, why, err := k.cfg.Tags.Low(ctx, k.loaded.Floors())
	if err != nil || need == 0 {
		return nil, err
	}
	return &finding{cause: era.WentBack, why: "marks are below what this worker loaded: " + why, need: need}, nil
}

// restore writes entries of tags that this worker knows and the bucket lacks: see [Tags].
//
// Law: a restored entry names the era in which this worker loaded the tag. So a resume raises its mark like any
// other, above all that other workers loaded of the tag in that era.
func (k *own) restore(ctx context.Context) error { return k.cfg.Tags.Restore(ctx, k.loaded.Floors()) }
