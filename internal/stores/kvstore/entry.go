package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/jitter"
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
	// Run is the IDs up to Mark that one process alone loaded: see [segment.Run]. If an operator or an older natsid
	// wrote Mark, Run ends below it, and the method in clears Run. So it does with a Run of an earlier era: if marks
	// went back before the resume, another process may have loaded the same IDs.
	Run segment.Run `json:"run,omitzero"`

	// The fields below are not stored: the method in sets them. Then Mark and Era above are those of the present era,
	// the time since the last resume, unless the tag is undecided.
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
	if e.Run.To != e.raw || by > 0 {
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
	// raises is how often this worker had raised rows of the table before this row was read: see setbacks.now. Only a
	// read of a single tag sets it.
	raises uint64
	fault  error // why the entry cannot be read; only listings set it
}

// beside adds the tag's row to the state. If the tag has no entry, its mark (next ID) becomes the row's max_id, lifted
// by all that resumes of the registry have added: the marks were lost, and the table may be in an earlier state, too.
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

// isUnmade reports whether the tag's creation is under way, or was interrupted: its entry claims the name, and its row
// was never read. If the row was read before, it was lost, and another copy of the table may still have it.
func (t state) isUnmade() bool { return t.Claimed && t.Seen == 0 }

func (t state) isDamaged() bool { return t.fault != nil }

// servable returns why no ID of a tag can be loaded, given the tag's row; nil if IDs can be.
func (t state) servable() error {
	if t.row != nil && (t.row.Step < 1 || t.row.MaxID < 1) {
		return fmt.Errorf("%w: step %d, max_id %d, want at least 1", segment.ErrBadRow, t.row.Step, t.row.MaxID)
	}
	return nil
}

// read returns an existing tag, or [segment.ErrUnknownTag]. It reads the entry before the row: Seen in the entry is the
// highest max_id that any worker had read, so a row with a lower one has gone back to an earlier state.
func (s *Store) read(ctx context.Context, tag string) (t state, err error) {
	if t, err = s.readMark(ctx, tag); err != nil {
		return t, err
	}
	if t.Disabled {
		s.kept.drop(tag)
	}
	exists := !t.isMissing()
	if s.cfg.Table != nil {
		var row segment.Row
		t.raises = s.setbacks.now()
		row, err = s.cfg.Table.Row(ctx, tag)
		t.beside(&row, s.limit())
		exists = true
	}
	if err == nil && (!exists || t.isUnmade()) {
		err = segment.ErrUnknownTag
	}
	return t, err
}

// readMark returns the state of a tag without its row. For a tag without an entry the state has the ID at which the tag
// would begin as its mark.
func (s *Store) readMark(ctx context.Context, tag string) (t state, err error) {
	if err := refused(tag); err != nil {
		return state{}, err
	}
	t.kve, err = s.kv.Get(ctx, tag)
	if err == nil {
		t.entry, err = decode(s.cfg.Bucket, t.kve)
	} else if errors.Is(err, buckets.ErrNoKey) {
		err = nil
	}
	var id era.Identity
	if err == nil {
		id, err = s.eras(ctx)
	}
	if err == nil {
		err = t.in(id, s.limit())
	}
	return t, err
}

// limit returns the highest mark (next ID of a tag) that the store can hold.
func (s *Store) limit() int64 {
	if s.cfg.Table == nil {
		return math.MaxInt64
	}
	return s.cfg.Table.Limit()
}

// eras returns the identity (the entry that describes the registry), whose eras say how marks are read: that of
// Config.Eras or, if it is nil, the bucket's. Call eras after reading entries, so that it has their eras. A bucket
// without an identity has none.
func (s *Store) eras(ctx context.Context) (era.Identity, error) {
	if s.cfg.Eras != nil {
		return s.cfg.Eras(), nil
	}
	id, err := s.readIdentity(ctx)
	if errors.Is(err, era.ErrNoIdentity) || errors.Is(err, era.ErrIdentity) {
		err = nil
	}
	return id, err
}

func (s *Store) readIdentity(ctx context.Context) (era.Identity, error) {
	kve, err := s.kv.Get(ctx, era.Key)
	if errors.Is(err, buckets.ErrNoKey) {
		return era.Identity{}, era.ErrNoIdentity
	}
	if err != nil {
		return era.Identity{}, err
	}
	return era.Decode(kve.Value)
}

// change replaces the entry of a tag by what f makes of it, by compare-and-set. If another write came first, change
// reads the entry again and calls f again. The error wraps [segment.ErrUncertain] if the write may have landed; after
// any other error nothing was changed.
func (s *Store) change(ctx context.Context, tag string, f func(*entry) error) error {
	return wrap(tag, jitter.Race(ctx, isOvertaken, func() (uint64, error) {
		was, err := s.read(ctx, tag)
		if err != nil {
			return 0, err
		}
		e := was.now()
		if err = f(&e); err == nil {
			_, err = s.replace(ctx, tag, was, e)
		}
		return was.kve.Revision, err
	}))
}

// replace writes e in place of the entry in the state was. It returns the new state, whose revision is 0 if unknown.
//
// Law: the written mark is at least the highest max_id ever read from the tag's row, so IDs that Leaf took stay taken.
func (s *Store) replace(ctx context.Context, tag string, was state, e entry) (state, error) {
	try := newCAS(was.kve.Revision, was.Token)
	e.Mark, e.Token = max(1, e.Mark, e.Seen), try.token
	s.sign(&e, was)
	revision, err := s.write(ctx, tag, e.encode(), was.kve.Revision)
	err = s.outcome(ctx, tag, try, written(err))
	s.raised(tag, was, e.Mark, err)
	e.raw = e.Mark
	return state{kve: buckets.Entry{Revision: revision, Created: time.Now()}, entry: e, row: was.row}, err
}

// write writes the entry of a tag if the entry's revision is still the parameter last, 0 for a tag without an entry.
func (s *Store) write(ctx context.Context, tag string, value []byte, last uint64) (revision uint64, err error) {
	if err := refused(tag); err != nil {
		return 0, err
	}
	if last == 0 {
		return s.kv.Create(ctx, tag, value) //mutant:first-mark
	}
	return s.kv.Update(ctx, tag, value, last)
}

// sign sets the run of e, the IDs up to its mark that one process alone loaded, if e raises the mark of the state was,
// which e replaces. If this process also wrote the run of was, the run of e continues that.
func (s *Store) sign(e *entry, was state) {
	if e.Mark > was.raw {
		e.Run = segment.Run{By: s.cfg.Process(), From: max(1, was.raw), To: e.Mark}
		if was.Run.By == e.Run.By {
			e.Run.From = was.Run.From
		}
	}
}

// raised calls Config.Raised if a write over the state was, which ended with err, has raised the mark to the parameter
// to, or may have raised it.
func (s *Store) raised(tag string, was state, to int64, err error) {
	if was.raw >= to || err != nil && !errors.Is(err, segment.ErrUncertain) {
		return
	}
	before := was.Run
	if before.By == s.cfg.Process() { // which records it itself
		before = segment.Run{}
	}
	s.cfg.Raised(tag, was.raw, to, before)
}

// outcome returns the final error of a write that ended with err. If err does not say whether the write landed,
// outcome reads the entry, which has the write's token if no other write has landed since.
func (s *Store) outcome(ctx context.Context, tag string, try cas, err error) error {
	if !errors.Is(err, segment.ErrUncertain) {
		return err
	}
	now, again := s.readMark(ctx, tag)
	if again != nil {
		return err
	}
	if try.outcome(now.kve.Revision, now.Token) == landed {
		return nil
	}
	return err
}

// refused returns an error for a tag whose name is one of natsid's own keys, which must not be used as a tag's. No
// request can have such a name, but a row of a table can.
func refused(tag string) error {
	if buckets.IsOwn(tag) {
		return fmt.Errorf("%w: %w", segment.ErrInvalid, buckets.ErrInvalidKey)
	}
	return nil
}

// written adds [segment.ErrUncertain] to the error of a write, unless the error says that nothing was written.
func written(err error) error {
	certain := []error{buckets.ErrRevision, buckets.ErrKeyExists, buckets.ErrKeyRemoved, buckets.ErrNoAnswer,
		buckets.ErrInvalidKey, segment.ErrUnknownTag}
	if err == nil || slices.ContainsFunc(certain, func(c error) bool { return errors.Is(err, c) }) {
		return err
	}
	return fmt.Errorf("%w: %w", segment.ErrUncertain, err)
}

// errOvertaken says that another worker has changed the tag's entry or row since this worker read it.
var errOvertaken = errors.New("kvstore: overtaken by another worker")

// isOvertaken reports whether a write was refused because another worker had written first.
func isOvertaken(err error) bool {
	return errors.Is(err, buckets.ErrRevision) || errors.Is(err, buckets.ErrKeyExists) || errors.Is(err, errOvertaken)
}

func wrap(tag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kvstore: tag %s: %w", tag, err)
}
