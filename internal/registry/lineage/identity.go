package lineage

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
)

// Keys in the bucket of marks. No tag can have one.
const (
	identityKey = buckets.Own
	ownPrefix   = buckets.Own + ".w."
	planPrefix  = buckets.Own + ".plan."
)

// Version is that of identities, own keys and journals.
const Version = 1

// An Identity is the one entry that says which registry a bucket of marks holds, and in which era: the value of one
// key, which only a compare-and-set changes. So registry, chain, incident and plan cannot part.
type Identity struct {
	Version  int       `json:"version"`
	Registry string    `json:"registry"` // a random ID, made with the first bucket
	Made     time.Time `json:"made"`
	Kind     string    `json:"kind"`    // what the marks are: the store, or the guard of a table
	Created  time.Time `json:"created"` // of the bucket's stream, as its founder or the last resume saw it
	// Eras is the chain of eras and ended incidents; the present era is the last one. An era has the ID of the incident
	// that ended before it, so no two histories of a registry contain the same one.
	Eras     []string  `json:"eras"`
	Incident *Incident `json:"incident,omitempty"` // the open one; nil if there is none
	Plan     *Plan     `json:"plan,omitempty"`     // of the open incident, or else of the one that ended last
	// Unconfirmed says that the bucket may lack tags that were in use, as no operator has confirmed its list of tags
	// since the last incident. Then no tag is created on first use.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Out is the registry that serves instead of this one; "" if this one serves.
	Out string `json:"out,omitempty"`
}

// An Incident is a stop of all workers of a registry, from the first proof until an operator resumes.
type Incident struct {
	ID      string    `json:"id"` // random
	Cause   Cause     `json:"cause"`
	Opened  time.Time `json:"opened"`
	Other   string    `json:"other,omitempty"` // the second registry, where that is the cause
	Provers []Prover  `json:"provers"`         // the first mostProvers
	// Forgotten are eras and incidents that provers had and the chain lacks. A resume adds them to the chain.
	Forgotten []string `json:"forgotten,omitempty"`
}

// A Prover is a worker that proved an incident.
type Prover struct {
	Name  string    `json:"name"`
	Why   string    `json:"why"`
	At    time.Time `json:"at"`
	State time.Time `json:"state,omitzero"` // of the bucket as found, or earlier: see foundAt
}

// mostProvers bounds the provers that an incident names, and with them the size of the entry.
const mostProvers = 20

// A Plan is how far a resume raises the tags. It lies in parts beside the identity, which names their digest.
type Plan struct {
	ID     string `json:"id"`
	Parts  int    `json:"parts"`
	Digest string `json:"digest"` // SHA-256 of all parts
}

// A Raise is what a plan says of one tag: it is raised from a mark, as found, to another one.
type Raise struct {
	Tag  string `json:"tag"`
	From int64  `json:"from,string"`
	To   int64  `json:"to,string"`
}

// A Cause is the kind of an incident. There is one for each emergency.
type Cause string

// The causes.
const (
	WentBack Cause = "marks-went-back" // the registry is in an earlier state, or in that of another history
	Lost     Cause = "marks-lost"      // the identity is missing or damaged: the bucket was purged, or made again
	Exposed  Cause = "bucket-unfit"    // the bucket has settings under which entries can vanish or change
	Second   Cause = "second-registry" // workers of another registry serve the same subjects
	Declared Cause = "declared"        // an operator said that a backup was restored
)

var (
	// ErrNoIdentity is returned for a bucket without identity.
	ErrNoIdentity = errors.New("lineage: the bucket of the marks has no identity")
	// ErrIdentity is returned for an identity that cannot be read.
	ErrIdentity = errors.New("lineage: the identity of the bucket of the marks cannot be read")
	// ErrNewer is returned for an identity that a newer natsid wrote. Nobody but that one replaces it.
	ErrNewer = errors.New("lineage: a newer natsid wrote the identity of the bucket of the marks")
)

// Found returns the identity of a registry that begins with a bucket.
func Found(kind string, created time.Time) Identity {
	return Identity{
		Version: Version, Registry: rand.Text(), Made: time.Now().UTC().Truncate(time.Second), Kind: kind,
		Created: created.UTC(), Eras: []string{rand.Text()},
	}
}

// Era returns the present era, "" if the registry has none yet.
func (id Identity) Era() string {
	if len(id.Eras) == 0 {
		return ""
	}
	return id.Eras[len(id.Eras)-1]
}

// open returns the ID of the open incident, "" if there is none.
func (id Identity) open() string {
	if id.Incident == nil {
		return ""
	}
	return id.Incident.ID
}

// Knows reports whether an era or ended incident is in the chain.
func (id Identity) Knows(era string) bool { return slices.Contains(id.Eras, era) }

// takenOut returns the identity with another registry that serves instead, unless it was decided otherwise.
func (id Identity) takenOut(keep string) (Identity, error) {
	if id.Out != "" && id.Out != keep {
		return id, fmt.Errorf("registry %s is out for registry %s already", id.Registry, id.Out)
	}
	id.Out = keep
	return id, nil
}

// Encode returns the value of the entry.
func (id Identity) Encode() []byte { return encode(id) }

// DecodeIdentity returns the identity in the value of an entry, [ErrIdentity] or [ErrNewer].
func DecodeIdentity(value []byte) (id Identity, err error) {
	switch err := json.Unmarshal(value, &id); {
	case err != nil:
		return Identity{}, fmt.Errorf("%w: it is damaged: %w", ErrIdentity, err)
	case id.Version > Version:
		return Identity{}, fmt.Errorf("%w: it has version %d, and this natsid knows %d: use the natsid that wrote it",
			ErrNewer, id.Version, Version)
	case id.Version != Version:
		return Identity{}, fmt.Errorf("%w: it is damaged: version %d", ErrIdentity, id.Version)
	case id.Registry == "" || id.Kind == "" || len(id.Eras) == 0 && id.Incident == nil:
		return Identity{}, fmt.Errorf("%w: it lacks registry, kind or era", ErrIdentity)
	}
	return id, nil
}

// forget notes eras and incidents that the chain lacks.
func (i *Incident) forget(chain Identity, ids ...string) (changed bool) {
	for _, id := range ids {
		if id != "" && id != i.ID && !chain.Knows(id) && !slices.Contains(i.Forgotten, id) {
			i.Forgotten = append(i.Forgotten, id)
			changed = true
		}
	}
	return changed
}

func (i *Incident) addProver(p Prover) {
	if len(i.Provers) < mostProvers {
		i.Provers = append(i.Provers, p)
	}
}

// Since returns the time of the state that was found: the earliest that a prover knows; zero if none does.
func (i *Incident) Since() (since time.Time) {
	for _, p := range i.Provers {
		if !p.State.IsZero() && (since.IsZero() || p.State.Before(since)) {
			since = p.State
		}
	}
	return since
}

// Why returns what the first prover found, and how many provers there are.
func (i *Incident) Why() string {
	if len(i.Provers) == 0 {
		return string(i.Cause)
	}
	p := i.Provers[0]
	return fmt.Sprintf("%s (found by worker %s)", p.Why, p.Name)
}

// raisesInPart is how many tags a part of a plan has, so that each part is below the payload limit of NATS, 1 MiB.
const raisesInPart = 2000

func planKey(id string, part int) string { return fmt.Sprintf("%s%s.%d", planPrefix, id, part) }

// partsOf returns a plan, and the entries of its parts.
func partsOf(raises []Raise) (p Plan, parts []buckets.Entry) {
	p.ID = newID()
	for some := range slices.Chunk(raises, raisesInPart) {
		parts = append(parts, buckets.Entry{Key: planKey(p.ID, len(parts)), Value: encode(some)})
	}
	p.Parts, p.Digest = len(parts), digest(parts)
	return p, parts
}

func digest(parts []buckets.Entry) string {
	sum := sha256.New()
	for _, e := range parts {
		sum.Write(e.Value) // never fails
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// errNoPlan is returned for a plan that is not as the identity names it. Its parts are written first, so the bucket
// went back in between.
var errNoPlan = errors.New("lineage: the plan that the identity names is gone or damaged")

// read returns the raises in the parts of a plan, or [errNoPlan].
func (p Plan) read(parts []buckets.Entry) (raises []Raise, err error) {
	for _, e := range parts {
		var some []Raise
		if json.Unmarshal(e.Value, &some) != nil {
			return nil, errNoPlan
		}
		raises = append(raises, some...)
	}
	if digest(parts) != p.Digest {
		return nil, errNoPlan
	}
	return raises, nil
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot be: strings, numbers and times
	}
	return b
}

// newID returns a random text that no other call returns.
func newID() string { return rand.Text() }
