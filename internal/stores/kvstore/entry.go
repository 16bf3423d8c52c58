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

// An entry is the value of a tag's key in the bucket. The tag's row in a table has max_id, which Leaf raises, too.
type entry struct {
	Mark        int64  `json:"mark"`           // no ID below it is ever reserved again
	Seen        int64  `json:"seen,omitempty"` // highest max_id that was ever read from the row; not above Mark
	Step        int64  `json:"step"`           // with a table, step and description are copies of the row's
	Description string `json:"description,omitempty"`
	Disabled    bool   `json:"disabled,omitempty"`
	Claimed     bool   `json:"claimed,omitempty"` // a Create is making the tag's row, or was interrupted
	Least       int64  `json:"least,omitempty"`   // no ID below it is issued, not even one already loaded
	// Token is the random token of the latest write. An entry that an operator put has none.
	Token string        `json:"token,omitempty"`
	Rules segment.Rules `json:"rules,omitzero"`
	// Era is the time between two resumes of the registry in which Mark was written; "" is none: see package era.
	Era   string `json:"era,omitempty"`
	First bool   `json:"first,omitempty"` // made by the first request, and not changed by an operator since
	// Run ends at Mark, unless an operator or an older natsid wrote Mark: then in clears Run.
	Run segment.Run `json:"run,omitzero"`

	// The fields below are not stored: in sets them. Unless undecided, Mark and Era above are then of the present era.
	raw       int64  // the mark as it was written
	present   string // the present era
	by        int64  // how much higher the mark is in the present era
	undecided bool   // an operator must say where the tag continues
}

// in converts an entry from its stored form to the present era, the time since the last resume of the registry. A
// resume lifts all marks, since marks had gone back or were lost. limit is the highest mark that the store can hold.
//
// Law: only in lifts a mark, by the offset of the present era minus that of the entry's era. Each write of an entry
// writes the lifted mark with the present era, so no mark is lifted twice. If a tag has a last number, or its mark
// would exceed limit, mark and era stay, and nothing is loaded until an operator says where the tag continues.
func (e *entry) in(id era.Identity, limit int64) error {
	by, err := id.Since(e.Era)
	if err != nil {
		return err
	}
	e.raw, e.present, e.by = e.Mark, id.Era, by
	if e.Run.To != e.raw {
		e.Run = segment.Run{}
	}
	if e.Mark == 0 {
		e.First = true // without entry, a tag counts as made by its first request
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

func (e entry) tag(name string, updated time.Time) segment.Tag {
	//mutant:merged
	return segment.Tag{
		Name: name, Step: e.Step, MaxID: max(e.Mark, e.Seen), Least: e.Least, Description: e.Description,
		Disabled: e.Disabled, Updated: updated.UTC(), Rules: e.Rules, Undecided: e.undecided,
	}
}

// set gives the entry the fields of t, the tag as it was created or changed, and keeps the other fields of the entry.
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
	entry               // of a tag without entry: what in makes of the zero entry
	row   *segment.Row  // nil if there is none
	fault error         // why the entry cannot be read; only listings set it
}

// beside adds the tag's row to the state. If the tag has no entry, the mark becomes the row's max_id, lifted by the
// whole offset of the present era: the marks were lost, and the table may be in an earlier state, too.
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

func (t state) isMissing() bool { return t.kve.Revision == 0 }

// isUnmade reports whether the tag's creation is under way, or was interrupted. A claimed tag is not unmade if its row
// was read before: the row was lost, and another copy of the table may still have the row.
func (t state) isUnmade() bool { return t.Claimed && t.Seen == 0 }

func (t state) isDamaged() bool { return t.fault != nil }

// servable returns why no ID of a tag can be loaded, given the tag's row; nil if IDs can be.
func (t state) servable() error {
	if t.row != nil && (t.row.Step < 1 || t.row.MaxID < 1) {
		return fmt.Errorf("%w: step %d, max_id %d, want at least 1", segment.ErrBadRow, t.row.Step, t.row.MaxID)
	}
	return nil
}
