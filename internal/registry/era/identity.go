// Package era is the identity of a registry of tags: the entry that says which registry a bucket holds, and which
// eras the registry had; it is internal to natsid and may change.
//
// # Eras and offsets
//
// The bucket holds the mark of each tag: its next ID. A registry that lost its marks, or went back to an earlier
// state, does not know which IDs were used since. So an operator begins a new era, the time until the next such
// resume. An era's offset is above those of all earlier eras, by more IDs than any tag used since. The entry of a tag
// names the era in which its mark was written. In the present era its mark is
//
//	mark + max(0, offset(present) - offset(the entry's era))
//
// and each write of the entry stores that mark and the present era. An entry that names no era has offset 0. A tag
// without an entry has mark 1 and offset 0, so a tag whose entry was lost continues above all IDs that it can have
// issued.
//
// Law: a new offset is above all offsets that the identity knows, or the workers that proved the loss. So no mark of
// a known era is read too low. A resume is one compare-and-set on the identity: it writes no tag's entry, and reads
// no clock.
//
// A tag with a last number has no room for an offset: it is undecided until an operator says where it continues.
package era

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
)

// Key is the identity's key in the bucket that also holds the marks of tags. No tag can have this name.
const Key = buckets.Own

// Version is the version of the format in which this natsid writes an [Identity].
const Version = 2

// An Identity says which registry a bucket of marks (the next IDs of tags) holds, and in which era, the time between
// two resumes. One compare-and-set writes all of it, so registry, eras and incident (a stop of all workers) fit
// together.
type Identity struct {
	Version  int       `json:"version"`
	Registry string    `json:"registry"` // a random ID, made with the first bucket
	Kind     string    `json:"kind"`     // [Alone] or [Guarded]
	Created  time.Time `json:"created"`  // when the bucket's stream was made, as the founder or the last resume read it
	// Era is the ID of the present era; "" if the identity was lost, until a resume. Offsets has all eras so far.
	Era     string            `json:"era"`
	Offsets Offsets           `json:"offsets"`
	Ended   map[string]string `json:"ended,omitempty"`  // maps an ended incident to the era that ended it
	Merged  []string          `json:"merged,omitempty"` // other registries, whose eras are in Offsets, too
	// Incident is the open incident, a stop of all workers; nil if there is none.
	Incident *Incident `json:"incident,omitempty"`
	// Throttle limits the rate of each tag, in IDs per second of all workers together; 0 is no limit.
	Throttle int64 `json:"throttle,omitempty"`
}

// The kinds of marks (the next IDs of tags). All workers of a namespace use the same kind.
const (
	Alone   = "kv"    // the marks are the only store of tags
	Guarded = "mysql" // a table stores the tags, and the marks protect it against lost commits
)

// Offsets maps the random ID of each era, a time between two resumes, to the era's offset: how much it adds to a mark
// (next ID of a tag) of no era.
type Offsets map[string]int64

// Add returns the eras of both o and the parameter more. An era that is in both gets the higher of its two offsets.
func (o Offsets) Add(more Offsets) Offsets {
	all := maps.Clone(o)
	if all == nil {
		all = make(Offsets)
	}
	for era, offset := range more {
		all[era] = max(all[era], offset)
	}
	return all
}

// Has reports whether o has all the eras given, each with the same offset or a higher one.
func (o Offsets) Has(eras Offsets) bool {
	for era, offset := range eras {
		if have, known := o[era]; !known || have < offset {
			return false
		}
	}
	return true
}

// An Incident is a stop of all workers of a registry, from the proof that its state is wrong until an operator resumes.
type Incident struct {
	ID      string   `json:"id"` // random
	Cause   Cause    `json:"cause"`
	Provers []Prover `json:"provers"` // workers that proved the cause: the first mostProvers
	// Other is a second registry that serves the same subjects, "" for none; because of it snowflakes are stopped, too.
	// Unused says that this registry never had a load or a worker number.
	Other  string `json:"other,omitempty"`
	Unused bool   `json:"unused,omitempty"`
	// Prior are the IDs of earlier incidents that had stopped provers, and whose end the [Identity] does not record.
	Prior []string `json:"prior,omitempty"`
	// Eras are the eras, with offsets, that provers know and the [Identity] lacks; Merged are the other registries that
	// provers remember. A resume adds both to the identity.
	Eras   Offsets  `json:"eras,omitempty"`
	Merged []string `json:"merged,omitempty"`
	// Need is the most by which a mark, the next ID of a tag, was below what a prover had loaded. If the marks are
	// lost, Need is the highest ID that a prover had loaded, minus the highest offset that this prover knows.
	Need int64 `json:"need,omitempty,string"`
}

// A Prover is a worker that proved that the state of the registry is wrong, and so began or confirmed an incident.
type Prover struct {
	Name string    `json:"name"`
	Why  string    `json:"why"`
	At   time.Time `json:"at"`
}

// mostProvers is how many provers an incident names at most, to bound the size of the identity.
const mostProvers = 20

// A Cause is why an incident, a stop of all workers, began.
type Cause string

// The causes of incidents.
const (
	WentBack Cause = "marks-went-back" // the bucket is in an earlier state, or holds other data than it should
	Lost     Cause = "marks-lost"      // the identity is missing or damaged: the bucket was purged, or made again
	Exposed  Cause = "bucket-unfit"    // the bucket has settings under which entries can vanish or change
	Second   Cause = "second-registry" // workers of another registry serve the same subjects
)

var (
	// ErrNoIdentity is returned for a bucket without an [Identity].
	ErrNoIdentity = errors.New("the bucket of the marks has no identity")
	// ErrIdentity is returned for an [Identity] that cannot be read.
	ErrIdentity = errors.New("the identity of the bucket of the marks cannot be read")
	// ErrNewer is returned for an [Identity] that a newer natsid wrote. Only a natsid that knows its version replaces
	// it.
	ErrNewer = errors.New("a newer natsid wrote the identity of the bucket of the marks")
	// ErrKind is returned if the marks (next IDs of tags) are of another [Identity].Kind than the worker is set up for.
	ErrKind = errors.New("the marks are of another kind of store")
)

// An UnknownError is returned for a tag's entry that names an era, a time between two resumes, which the identity of
// the registry, as last read, lacks.
type UnknownError struct{ Era string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("the entry is of an era that is not known here: %s", e.Era)
}

// Blank returns the identity of a registry that has no era yet.
func Blank(kind string, created time.Time) Identity {
	return Identity{Version: Version, Registry: rand.Text(), Kind: kind, Created: created.UTC()}
}

// Found returns the identity of a new registry in its first era. created is the creation time of the bucket's stream.
func Found(kind string, created time.Time) Identity {
	id := Blank(kind, created)
	id.Era = rand.Text()
	id.Offsets = Offsets{id.Era: 0}
	return id
}

// Offset returns the offset of the present era: how much it adds to a mark (next ID) of no era.
func (id Identity) Offset() int64 { return id.Offsets[id.Era] }

// Open returns the ID of the open incident, "" if there is none.
func (id Identity) Open() string {
	if id.Incident == nil {
		return ""
	}
	return id.Incident.ID
}

// Since returns what to add to a mark, the next ID of a tag, that was written in the given era, to read it in the
// present one; "" is no era. It returns an [UnknownError] for an era that the registry does not have.
func (id Identity) Since(era string) (by int64, err error) {
	offset, known := id.Offsets[era]
	if era != "" && !known {
		return 0, &UnknownError{era}
	}
	return max(0, id.Offset()-offset), nil
}

// IsOf reports whether the given registry is that of the identity, or was merged into it.
func (id Identity) IsOf(registry string) bool {
	return id.Registry == registry || slices.Contains(id.Merged, registry)
}

// Merge returns the identity with another registry and its eras merged into it.
func (id Identity) Merge(registry string, eras Offsets) Identity {
	if !id.IsOf(registry) {
		id.Merged = append(slices.Clone(id.Merged), registry)
	}
	id.Offsets = id.Offsets.Add(eras)
	return id
}

// Knowing returns the identity with more eras: those that its open incident names, and the given ones. The present
// era stays the same.
func (id Identity) Knowing(eras Offsets) Identity {
	if id.Incident != nil {
		id.Offsets = id.Offsets.Add(id.Incident.Eras)
	}
	id.Offsets = id.Offsets.Add(eras)
	return id
}

// MostOffset is the highest offset that an era can have, in IDs.
const MostOffset = 1 << 62

// Resume returns the identity in a new era, which ends the open incident (the stop of all workers), if there is one.
// The parameter by is how many IDs a tag may have used beyond what is known, need is by how much marks (next IDs) are
// known to be too low, and created is when the bucket's stream was made.
//
// Law: offset(new) = highest offset that the identity or the incident has + need + by. So in the new era each mark, 1
// for a tag without an entry, is above all that was loaded of the tag, unless more than by IDs were loaded after the
// state in the bucket. The ID is random: if a bucket is set back to before its resume, and resumed again, the two
// eras differ.
func (id Identity) Resume(by, need int64, created time.Time) (Identity, error) {
	if in := id.Incident; in != nil {
		id = id.Knowing(nil)
		for _, registry := range in.Merged {
			id = id.Merge(registry, nil)
		}
		need = max(need, in.Need)
	}
	highest := int64(0)
	for _, offset := range id.Offsets {
		highest = max(highest, offset)
	}
	if by < 0 || need < 0 || by > MostOffset || need > MostOffset || highest > MostOffset-by-need {
		return id, fmt.Errorf("the new era would have an offset above %d", int64(MostOffset))
	}
	id.Era = rand.Text()
	id.Offsets = id.Offsets.Add(Offsets{id.Era: highest + by + need})
	if in := id.Incident; in != nil {
		id.Ended = maps.Clone(id.Ended)
		if id.Ended == nil {
			id.Ended = make(map[string]string)
		}
		for _, ended := range append(slices.Clone(in.Prior), in.ID) {
			id.Ended[ended] = id.Era
		}
	}
	id.Version, id.Incident, id.Created = Version, nil, created.UTC()
	return id, nil
}

// Encode returns the identity as the value of its entry in the bucket.
func (id Identity) Encode() []byte {
	id.Version = Version
	b, err := json.Marshal(id)
	if err != nil {
		panic(err) // cannot happen: it has strings, numbers and times
	}
	return b
}

// Decode returns the identity in an entry's value: [ErrIdentity] if it is damaged, [ErrNewer] if it is too new.
func Decode(value []byte) (id Identity, err error) {
	switch err := json.Unmarshal(value, &id); {
	case id.Version > Version: // first, as a newer format may not fit Identity
		return Identity{}, fmt.Errorf("%w: it has version %d, and this natsid knows %d: use the natsid that wrote it",
			ErrNewer, id.Version, Version)
	case err != nil:
		return Identity{}, fmt.Errorf("%w: it is damaged: %w", ErrIdentity, err)
	case id.Version < 1:
		return Identity{}, fmt.Errorf("%w: it is damaged: version %d", ErrIdentity, id.Version)
	case id.Registry == "" || id.Kind == "" || id.Era == "" && id.Incident == nil:
		return Identity{}, fmt.Errorf("%w: it lacks registry, kind or era", ErrIdentity)
	}
	return id, nil
}

// Accuse returns the identity with an incident that a worker has proved. The parameter proof has what the worker
// knows: its eras, its earlier incidents, and by how much a mark was too low. If joins is true, proof is added to the
// open incident. Otherwise proof becomes the open incident, and takes over the facts of the former one.
func (id Identity) Accuse(proof Incident, joins bool) Identity {
	in := proof
	if open := id.Incident; open != nil {
		if joins {
			in = *open
			in.Provers = append(slices.Clone(open.Provers), proof.Provers...)
			in.Provers = in.Provers[:min(len(in.Provers), mostProvers)]
		}
		in.Prior = append(slices.Clone(open.Prior), proof.Prior...)
		if !joins {
			in.Prior = append(in.Prior, open.ID)
		}
		in.Merged = append(slices.Clone(open.Merged), proof.Merged...)
		in.Eras, in.Need = open.Eras.Add(proof.Eras), max(open.Need, proof.Need)
		in.Other, in.Unused = cmp.Or(proof.Other, open.Other), open.Unused || proof.Unused
		if open.Cause == Lost { // all entries are gone, whatever else is wrong
			in.Cause = Lost
		}
	}
	slices.Sort(in.Merged)
	in.Merged = slices.DeleteFunc(slices.Compact(in.Merged), func(other string) bool {
		return other == "" || id.IsOf(other)
	})
	slices.Sort(in.Prior)
	in.Prior = slices.DeleteFunc(slices.Compact(in.Prior), func(prior string) bool {
		return prior == "" || prior == in.ID || id.Ended[prior] != ""
	})
	in.Eras = maps.Clone(in.Eras)
	maps.DeleteFunc(in.Eras, func(era string, offset int64) bool {
		return era == "" || id.Offsets.Has(Offsets{era: offset})
	})
	id.Incident = &in
	return id
}

// Why returns what the first prover found, and the name of that worker.
func (i *Incident) Why() string {
	if len(i.Provers) == 0 {
		return string(i.Cause)
	}
	p := i.Provers[0]
	return fmt.Sprintf("%s (found by worker %s)", p.Why, p.Name)
}
