package kvstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// An entry is the value of a tag's key.
type entry struct {
	Mark        int64  `json:"mark"`           // no ID below it is ever reserved again
	Seen        int64  `json:"seen,omitempty"` // highest max_id that was ever read from a table; not above Mark
	Step        int64  `json:"step"`           // with a table, step and description are copies of the row's
	Description string `json:"description,omitempty"`
	Disabled    bool   `json:"disabled,omitempty"`
	Claimed     bool   `json:"claimed,omitempty"` // a call is making the tag's row
	Least       int64  `json:"least,omitempty"`   // no ID below it is issued, not even one already loaded
	// Token is random, and that of the latest write. An entry that an operator put has none.
	Token string        `json:"token,omitempty"`
	Rules segment.Rules `json:"rules,omitzero"`
	// Era is the one in which Mark was written, "" for none: see package era.
	Era   string `json:"era,omitempty"`
	First bool   `json:"first,omitempty"` // made on first use, and not changed by an operator since

	// The fields below are set when an entry is read: the mark as it was written, the present era, and whether an
	// operator must decide where the tag continues. If none must, Mark and Era above are those of the present era.
	raw       int64
	present   string
	by        int64 // how much higher the mark is in the present era
	undecided bool
}

// in converts an entry from its stored form to the present era. limit is the highest mark that the store can hold.
//
// Law: only in adds an offset to a mark: that of the present era minus that of the entry's era. Each write of an entry
// writes the raised mark and the present era. A tag with a last number, or whose mark would exceed limit, has no room
// for an offset: its mark and era stay, and nothing is loaded until an operator decides.
func (e *entry) in(id era.Identity, limit int64) error {
	by, err := id.Since(e.Era)
	if err != nil {
		return err
	}
	e.raw, e.present, e.by = e.Mark, id.Era, by
	if e.Mark == 0 {
		e.First = true // it counts as made on first use until an operator creates it
	}
	e.Mark = max(1, e.Mark) // 1 for a tag without entry
	switch {
	case by > 0 && (e.Rules.Bounded() || e.Mark > limit-by): //mutant:undecided
		e.undecided = true
		return nil
	case by > 0:
		e.Mark += by //mutant:offset
	}
	e.Era = e.present
	return nil
}

func (e entry) encode() []byte {
	e.Step = max(1, e.Step) // a row may have a step below 1
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // impossible: integers, strings and a bool
	}
	return b
}

// decode decodes an entry of a bucket.
func decode(bucket string, kve buckets.Entry) (e entry, err error) {
	err = json.Unmarshal(kve.Value, &e)
	if err == nil && (e.Mark < 1 || e.Step < 1) {
		err = errors.New("mark and step must be positive")
	}
	if err != nil {
		return entry{}, fmt.Errorf("kvstore: the entry %s of bucket %s is damaged; replace it with `nats kv put`, "+
			"its mark above every ID that any worker loaded: %w", kve.Key, bucket, err)
	}
	return e, nil
}

// tag returns the entry as a tag of a store.
func (e entry) tag(name string, updated time.Time) segment.Tag {
	//mutant:merged
	return segment.Tag{
		Name: name, Step: e.Step, MaxID: max(e.Mark, e.Seen), Least: e.Least, Description: e.Description,
		Disabled: e.Disabled, Updated: updated.UTC(), Rules: e.Rules, Undecided: e.undecided,
	}
}

// set gives the entry the fields of a created tag, and keeps its other fields.
func (e *entry) set(t segment.Tag) {
	e.Mark = max(e.Mark, t.MaxID) //mutant:changed
	e.Least, e.Step, e.Description, e.Disabled, e.Rules = t.Least, t.Step, t.Description, t.Disabled, t.Rules
	e.Claimed, e.First = false, false
	if e.undecided = t.Undecided; !e.undecided {
		e.Era = e.present
	}
}

// A state is a tag as it was read: its entry and, with a table, its row.
type state struct {
	kve   buckets.Entry // zero if the tag has no entry
	entry               // of a tag without entry: mark 1, in no era
	row   *segment.Row  // nil if there is none
	fault error         // why the entry cannot be read, in a listing
}

// beside adds the row to the state. If the tag has no entry, the mark is the row's max_id, raised like a mark of no
// era: the marks were lost, and the table may have gone back, too.
func (t *state) beside(row *segment.Row, limit int64) {
	t.row = row
	switch {
	case !t.isMissing() || t.by == 0:
	case row.MaxID > limit-t.by:
		t.Mark, t.Era, t.undecided = max(1, row.MaxID), "", true
	default:
		t.Mark = max(t.Mark, row.MaxID+t.by)
	}
}

// now returns the entry with the present values of the row.
func (t state) now() entry {
	e := t.entry
	if t.row != nil {
		e.Seen, e.Step, e.Description = max(e.Seen, t.row.MaxID), t.row.Step, t.row.Description
	}
	return e
}

// tag returns the tag that the entry and the row describe together.
func (t state) tag(name string) segment.Tag {
	updated := t.kve.Created
	if t.row != nil && t.row.Updated.After(updated) {
		updated = t.row.Updated
	}
	return t.now().tag(name, updated)
}

// isMissing reports whether the tag has no entry.
func (t state) isMissing() bool { return t.kve.Revision == 0 }

// isUnmade reports whether the tag's creation is under way, or was interrupted. A claimed tag that was loaded before
// has lost its row, and is not unmade: another copy of the table may still have the row.
func (t state) isUnmade() bool { return t.Claimed && t.Seen == 0 }

// isDamaged reports whether the tag has an entry that cannot be read.
func (t state) isDamaged() bool { return t.fault != nil }

// servable returns why no ID of a tag with a row can be loaded, nil if IDs can.
func (t state) servable() error {
	if t.row != nil && (t.row.Step < 1 || t.row.MaxID < 1) {
		return fmt.Errorf("%w: step %d, max_id %d, want at least 1", segment.ErrBadRow, t.row.Step, t.row.MaxID)
	}
	return nil
}
