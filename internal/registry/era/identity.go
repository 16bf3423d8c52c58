package era

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
)

// Key is the identity's key in the bucket of marks. No tag can have it.
const Key = buckets.Own

// Version is that of identities that are written. Those of version 1, of which no era has an offset, are read as well.
const Version = 2

// An Identity is the one entry that says which registry a bucket of marks holds, and in which era: the value of one
// key, which only a compare-and-set changes. So registry, eras and incident cannot part.
type Identity struct {
	Version  int       `json:"version"`
	Registry string    `json:"registry"` // a random ID, made with the first bucket
	Made     time.Time `json:"made"`
	Kind     string    `json:"kind"`    // what the marks are: the store, or the guard of a table
	Created  time.Time `json:"created"` // of the bucket's stream, as its founder or the last resume saw it
	// Eras are random IDs; the present era is the last one.
	Eras    []string          `json:"eras"`
	Offsets Offsets           `json:"offsets,omitempty"`
	Ended   map[string]string `json:"ended,omitempty"`  // by incident: the era that ended it
	Merged  []string          `json:"merged,omitempty"` // other registries whose eras are among these
	// Incident is the open one; nil if there is none.
	Incident *Incident `json:"incident,omitempty"`
	// Out is the registry that serves instead of this one; "" if this one serves.
	Out string `json:"out,omitempty"`
}

// Offsets are those of eras, by ID. An era that is missing has the offset 0.
type Offsets map[string]int64

// Add takes in offsets; of two that an era has the higher one counts.
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

// An Incident is a stop of all workers of a registry, from the first proof until an operator resumes.
type Incident struct {
	ID      string    `json:"id"` // random
	Cause   Cause     `json:"cause"`
	Opened  time.Time `json:"opened"`
	Other   string    `json:"other,omitempty"` // the second registry, where that is the cause
	Provers []Prover  `json:"provers"`         // the first mostProvers
	// Prior are incidents in which a prover was before, and that the registry does not know to have ended.
	Prior []string `json:"prior,omitempty"`
	// Eras are those that provers know, with their offsets, and Merged the registries to which provers belong. A resume
	// adds them to the registry's.
	Eras   Offsets  `json:"eras,omitempty"`
	Merged []string `json:"merged,omitempty"`
	// Need is by how much a mark was found below what a prover had loaded, at most; where the marks are lost, the
	// highest ID that a prover had loaded.
	Need int64 `json:"need,omitempty,string"`
}

// A Prover is a worker that proved an incident.
type Prover struct {
	Name string    `json:"name"`
	Why  string    `json:"why"`
	At   time.Time `json:"at"`
}

// mostProvers bounds the provers that an incident names, and with them the size of the entry.
const mostProvers = 20

// A Cause is the kind of an incident. There is one for each emergency.
type Cause string

// The causes.
const (
	WentBack Cause = "marks-went-back" // the registry is in an earlier state, or in that of another history
	Lost     Cause = "marks-lost"      // the identity is missing or damaged: the bucket was purged, or made again
	Exposed  Cause = "bucket-unfit"    // the bucket has settings under which entries can vanish or change
	Second   Cause = "second-registry" // workers of another registry serve the same subjects
)

var (
	// ErrNoIdentity is returned for a bucket without identity.
	ErrNoIdentity = errors.New("the bucket of the marks has no identity")
	// ErrIdentity is returned for an identity that cannot be read.
	ErrIdentity = errors.New("the identity of the bucket of the marks cannot be read")
	// ErrNewer is returned for an identity that a newer natsid wrote. Nobody but that one replaces it.
	ErrNewer = errors.New("a newer natsid wrote the identity of the bucket of the marks")
	// ErrKind is returned for marks of another kind than the worker's.
	ErrKind = errors.New("the marks are of another kind of store")
	// ErrUnknown is returned for an entry of an era that the registry, as it was read last, does not have.
	ErrUnknown = errors.New("the entry is of an era that is not known here")
)

// An UnknownError is [ErrUnknown] with the era.
type UnknownError struct{ Era string }

func (e *UnknownError) Error() string { return fmt.Sprintf("%v: %s", ErrUnknown, e.Era) }

// Unwrap returns [ErrUnknown].
func (e *UnknownError) Unwrap() error { return ErrUnknown }

// Found returns the identity of a registry that begins with a bucket.
func Found(kind string, created time.Time) Identity {
	return Identity{
		Version: Version, Registry: rand.Text(), Made: time.Now().UTC().Truncate(time.Second), Kind: kind,
		Created: created.UTC(), Eras: []string{rand.Text()},
	}
}

// Remembered returns the identity of a registry as far as who was in an era of it remembers it.
func Remembered(registry, present string, eras Offsets) Identity {
	id := Identity{Registry: registry, Offsets: eras}
	for era := range eras {
		if era != present {
			id.Eras = append(id.Eras, era)
		}
	}
	id.Eras = append(id.Eras, present)
	return id
}

// Present returns the present era, "" if the registry has none yet.
func (id Identity) Present() string {
	if len(id.Eras) == 0 {
		return ""
	}
	return id.Eras[len(id.Eras)-1]
}

// Offset returns that of the present era.
func (id Identity) Offset() int64 { return id.Offsets[id.Present()] }

// Open returns the ID of the open incident, "" if there is none.
func (id Identity) Open() string {
	if id.Incident == nil {
		return ""
	}
	return id.Incident.ID
}

// Since returns by how much the mark of an entry of an era, "" for none, is higher in the present one. It returns an
// [UnknownError] for an era that the registry does not have.
func (id Identity) Since(era string) (by int64, err error) {
	if era != "" && !slices.Contains(id.Eras, era) {
		return 0, &UnknownError{era}
	}
	return max(0, id.Offset()-id.Offsets[era]), nil
}

// All returns the offset of each era.
func (id Identity) All() Offsets {
	all := make(Offsets, len(id.Eras))
	for _, era := range id.Eras {
		all[era] = id.Offsets[era]
	}
	return all
}

// Has reports whether the registry has some eras, each with its offset or a higher one.
func (id Identity) Has(eras Offsets) bool {
	for era, offset := range eras {
		if !slices.Contains(id.Eras, era) || id.Offsets[era] < offset {
			return false
		}
	}
	return true
}

// HasEnded reports whether an era ended an incident. In version 1 an era had the ID of the incident that ended before.
func (id Identity) HasEnded(incident string) bool {
	return id.Ended[incident] != "" || slices.Contains(id.Eras, incident)
}

// IsOf reports whether entries and workers of a registry belong to this one.
func (id Identity) IsOf(registry string) bool {
	return id.Registry == registry || slices.Contains(id.Merged, registry)
}

// TakenOut returns the identity with another registry that serves instead, unless it was decided otherwise.
func (id Identity) TakenOut(keep string) (Identity, error) {
	if id.Out != "" && id.Out != keep {
		return id, fmt.Errorf("registry %s is out for registry %s already", id.Registry, id.Out)
	}
	id.Out = keep
	return id, nil
}

// Merge returns the identity with another registry, and its eras.
func (id Identity) Merge(registry string, eras Offsets) Identity {
	if !id.IsOf(registry) {
		id.Merged = append(slices.Clone(id.Merged), registry)
	}
	return id.with(eras)
}

// with returns the identity with more eras, before the present one.
func (id Identity) with(eras Offsets) Identity {
	id.Offsets = id.Offsets.Add(eras)
	var more []string
	for _, era := range slices.Sorted(maps.Keys(eras)) {
		if !slices.Contains(id.Eras, era) {
			more = append(more, era)
		}
	}
	id.Eras = append(more, id.Eras...)
	return id
}

// Knowing returns the identity with the eras of its open incident, and others, in the present era.
func (id Identity) Knowing(eras Offsets) Identity {
	if id.Incident != nil {
		id = id.with(id.Incident.Eras)
	}
	return id.with(eras)
}

// MostOffset is the highest offset that an era can have.
const MostOffset = 1 << 62

// Resume returns the identity in a new era, which ends the open incident, if there is one. by is how far a tag can have
// been loaded beyond the marks, at most, and created the time of the bucket's stream.
//
// Law: the offset of the new era is above that of each era that the registry or a prover knows, by as much as marks
// were found too low, and by. So in the new era each mark, and 1 for a tag that has none, is above all that was loaded
// of the tag, if no tag was loaded, raised or created further than by since the state that was found. The era's ID is
// fresh: of two resumes of one restored incident none makes the other's era.
func (id Identity) Resume(by, need int64, created time.Time) (Identity, error) {
	if in := id.Incident; in != nil {
		id = id.with(in.Eras)
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
	present := rand.Text()
	id.Eras = append(slices.Clone(id.Eras), present)
	id.Offsets = id.Offsets.Add(Offsets{present: highest + by + need})
	if in := id.Incident; in != nil {
		id.Ended = maps.Clone(id.Ended)
		if id.Ended == nil {
			id.Ended = make(map[string]string)
		}
		for _, ended := range append(slices.Clone(in.Prior), in.ID) {
			id.Ended[ended] = present
		}
	}
	id.Version, id.Incident, id.Created, id.Out = Version, nil, created.UTC(), ""
	return id, nil
}

// Encode returns the value of the entry.
func (id Identity) Encode() []byte {
	id.Version = Version
	b, err := json.Marshal(id)
	if err != nil {
		panic(err) // cannot be: strings, numbers and times
	}
	return b
}

// Decode returns the identity in the value of an entry, [ErrIdentity] or [ErrNewer].
func Decode(value []byte) (id Identity, err error) {
	switch err := json.Unmarshal(value, &id); {
	case id.Version > Version: // whatever else it has
		return Identity{}, fmt.Errorf("%w: it has version %d, and this natsid knows %d: use the natsid that wrote it",
			ErrNewer, id.Version, Version)
	case err != nil:
		return Identity{}, fmt.Errorf("%w: it is damaged: %w", ErrIdentity, err)
	case id.Version < 1:
		return Identity{}, fmt.Errorf("%w: it is damaged: version %d", ErrIdentity, id.Version)
	case id.Registry == "" || id.Kind == "" || len(id.Eras) == 0 && id.Incident == nil:
		return Identity{}, fmt.Errorf("%w: it lacks registry, kind or era", ErrIdentity)
	}
	return id, nil
}

// Accuse returns the identity with an incident that a worker has proved, and the facts that it knows: the eras that it
// remembers, the incidents in which it was, by how much a mark was too low. joins says that it joins the open incident;
// otherwise the incident is a new one, which keeps the facts of the open one.
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
		if open.Cause == Lost { // whatever else is found: all that was in the bucket is gone
			in.Cause = Lost
		}
	}
	slices.Sort(in.Merged)
	in.Merged = slices.DeleteFunc(slices.Compact(in.Merged), func(other string) bool {
		return other == "" || id.IsOf(other)
	})
	slices.Sort(in.Prior)
	in.Prior = slices.DeleteFunc(slices.Compact(in.Prior), func(prior string) bool {
		return prior == "" || prior == in.ID || id.HasEnded(prior)
	})
	in.Eras = maps.Clone(in.Eras)
	maps.DeleteFunc(in.Eras, func(era string, offset int64) bool {
		return era == "" || slices.Contains(id.Eras, era) && id.Offsets[era] >= offset
	})
	id.Incident = &in
	return id
}

// Why returns what the first prover found, and which worker that is.
func (i *Incident) Why() string {
	if len(i.Provers) == 0 {
		return string(i.Cause)
	}
	p := i.Provers[0]
	return fmt.Sprintf("%s (found by worker %s)", p.Why, p.Name)
}
