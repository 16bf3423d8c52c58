package witness

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Keys in the bucket of marks.
const (
	prefix      = "$natsid.w."   // of witnesses
	incidentKey = "$natsid.back" // of the last incident
)

// version is that of records, incidents and journals.
const version = 1

// A record is the value of a witness key. Only the worker that owns the witness writes it.
type record struct {
	Version int       `json:"version"`
	Counter uint64    `json:"counter"` // of the writes of this witness; it only rises
	Token   string    `json:"token"`   // random, fresh with each write
	Name    string    `json:"name"`    // of the worker, for people
	Time    time.Time `json:"time"`    // of the write, for people
	// Life is the memory that the owner has without a gap: of all ranges that it loaded since the life began. A
	// process that stopped cleanly and kept its floors on disk continues its life.
	Life string `json:"life"`
	// After is the life of this witness before Life: "" if Life is the first, lost if it is not known.
	After string `json:"after,omitempty"`
	// Ended says that the life stopped cleanly: it loads nothing more, unless it continues.
	Ended bool `json:"ended,omitempty"`
	// Volatile says that the owner has no data directory: once Ended, another worker may take over the key.
	Volatile bool `json:"volatile,omitempty"`
	// Answer is the incident for which the owner has lifted all its floors, "" for none. Gap is why it does not know
	// all that its witness loaded since the bucket went back, "" if it does.
	Answer string `json:"answer,omitempty"`
	Gap    string `json:"gap,omitempty"`
	// Retired is why other workers count no more on the owner, which did not answer: it never writes this witness
	// again. See [Witness.retire].
	Retired string `json:"retired,omitempty"`
	// Owes is what showed this worker that the bucket went back, until it has answered: so its next process knows.
	Owes string `json:"owes,omitempty"`
}

// lost stands for a life that is not known.
const lost = "?"

// gap returns why a worker of life r.Life cannot know all loads that its witness made after the bucket was in the state
// in which the witness was found, "" if it can.
//
// Law: lives of one witness follow one another: each names the one before. All loads of the present life are known. So
// loads are unknown only if another life may have loaded after the found state, which is when the life found there is
// neither the present one, nor ended and the one before it. A life in a data directory may continue after it has ended,
// so a worker names it as the one before only if that is a witness without data directory.
func (r record) gap(found *record) string {
	switch {
	case found == nil && r.After == "":
		return "" // the witness is younger than the state, and has no other life
	case found == nil:
		return "an earlier process of this data directory loaded ranges after the restored state began"
	case found.Life == r.Life:
		return ""
	case found.Ended && found.Life == r.After:
		return ""
	}
	return "an earlier process of this data directory may have loaded ranges after the restored state, and did not " +
		"stop cleanly since"
}

var (
	// errDamaged says that a record or an incident is none that any natsid wrote.
	errDamaged = errors.New("witness: an entry is damaged")
	// errNewer says that a record or an incident was written by a newer natsid.
	errNewer = errors.New("witness: the bucket of marks has an entry of a newer natsid: upgrade this worker")
)

func decodeRecord(value []byte) (r record, err error) {
	switch err = json.Unmarshal(value, &r); {
	case err != nil:
		return record{}, fmt.Errorf("%w: a witness record: %w", errDamaged, err)
	case r.Version > version:
		return record{}, fmt.Errorf("%w: a witness record of version %d", errNewer, r.Version)
	case r.Version < 1 || r.Token == "" || r.Life == "":
		return record{}, fmt.Errorf("%w: a witness record: version, token and life must be set", errDamaged)
	}
	return r, nil
}

// An incident is the state of the repair after the bucket went back. Each set-back that is found has one.
type incident struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Opened  time.Time `json:"opened"`
	By      string    `json:"by"`  // the worker that found it
	Why     string    `json:"why"` // what it found
	// Must are the witnesses that have to answer, with the names of their workers: those that did not stop cleanly
	// before the restored state, and those that any worker remembers and the restored state does not have.
	Must map[string]string `json:"must,omitempty"`
	// Closed is when loads may continue; zero while the incident is open.
	Closed   time.Time `json:"closed,omitzero"`
	RaisedBy int64     `json:"raised_by,omitempty"` // by how much an operator raised all tags to close it
	// Lacks says that the bucket may lack tags that were in use, since an operator raised those that it has: see
	// [Witness.mayMake]. It is when the bucket had been confirmed last by then.
	Lacks *time.Time `json:"lacks,omitempty"`
}

func (i incident) open() bool { return i.ID != "" && i.Closed.IsZero() }

func decodeIncident(value []byte) (i incident, err error) {
	switch err = json.Unmarshal(value, &i); {
	case err != nil:
		return incident{}, fmt.Errorf("%w: the incident %s: %w", errDamaged, incidentKey, err)
	case i.Version > version:
		return incident{}, fmt.Errorf("%w: the incident %s of version %d", errNewer, incidentKey, i.Version)
	case i.Version < 1 || i.ID == "":
		return incident{}, fmt.Errorf("%w: the incident %s: version and ID must be set", errDamaged, incidentKey)
	}
	return i, nil
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot be: strings, numbers and times
	}
	return b
}

// newToken returns a random string that no other call returns.
func newToken() string { return rand.Text() }
