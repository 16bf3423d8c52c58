package kvstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/segment"
)

// Create implements [segment.Store].
//
// Law: no load of a tag succeeds before the rules of the tag are in its entry. With a table a tag needs a row, too. So
// Create writes an entry that claims the name, inserts the row, and then completes the entry. Until then the tag, if
// it was never loaded, is unknown to all other calls. Of concurrent calls the one that completes the entry has created
// the tag, whichever of them inserted the row.
func (s *Store) Create(ctx context.Context, t segment.Tag, revive bool) (created segment.Tag, err error) {
	if err := t.Validate(); err != nil {
		return segment.Tag{}, err
	}
	if first, limit := max(t.MaxID, t.Rules.Begins(time.Now())), s.limit(); first > limit {
		return segment.Tag{}, fmt.Errorf("%w: start %d, the table holds at most %d", segment.ErrInvalid, first, limit)
	}
	c := creation{tag: t, revive: revive}
	err = jitter.Race(ctx, isOvertaken, func() (revision uint64, err error) {
		created, revision, err = s.tryCreate(ctx, &c)
		return revision, err
	})
	if c.inserted && err != nil {
		err = fmt.Errorf("%w: the row was made, but the mark was not changed: %w", segment.ErrUncertain, err)
	}
	if err != nil {
		return segment.Tag{}, wrap(t.Name, err)
	}
	return created, nil
}

// A creation is a call that creates a tag, with what it has found and done so far.
type creation struct {
	tag      segment.Tag
	revive   bool
	inserted bool // this call inserted the row
	taken    bool // the key had an entry that the last read did not show
}

// tryCreate reads the state of a tag and creates the tag from that state, whose revision it returns. If another write
// came first, the caller tries again.
func (s *Store) tryCreate(ctx context.Context, c *creation) (segment.Tag, uint64, error) {
	was, err := s.readFree(ctx, c.tag.Name, c.revive || c.inserted)
	read := was.kve.Revision
	if err != nil {
		return segment.Tag{}, read, err
	}
	t, err := was.created(c.tag, s.limit())
	if errors.Is(err, errSayStart) && !c.revive {
		err = segment.ErrUndecided
	}
	if err == nil {
		err = s.mayDecide(ctx, was.entry, t)
	}
	if err != nil {
		return segment.Tag{}, read, err
	}
	change := segment.Change{Step: t.Step, Description: &t.Description, MaxID: t.MaxID}
	hasRow := was.row != nil
	switch {
	case s.cfg.Table == nil:
	case hasRow: // values that the row cannot hold are refused before the entry is changed
		err = s.cfg.Table.Try(ctx, t.Name, change)
	default:
		was, err = s.insert(ctx, t, was, c)
	}
	if err != nil {
		return segment.Tag{}, read, err
	}
	e := was.now()
	if was.isMissing() || was.isUnmade() {
		e.Mark = 1
	}
	e.set(t)
	if e.First = !c.revive; c.tag.MaxID == 0 && was.isMissing() && s.cfg.Table == nil {
		e.Mark, e.Era = 1, "" // a mark of no era, which each era lifts, in whichever bucket it lands
		if t.Rules.Period == "" {
			e.Mark = max(1, t.Rules.Min)
		}
	}
	if _, err = s.put(ctx, t.Name, was, e, c); err == nil && hasRow {
		err = half(s.cfg.Table.Update(ctx, t.Name, change))
	}
	t.Updated = time.Now().UTC()
	return t, read, err
}

// created returns t, a tag to create, as it is to be stored, given s, the state of the tag as it was read. If the tag
// existed, t begins at its former mark or above. If it was deleted, no ID below that mark is issued any more.
func (s state) created(t segment.Tag, limit int64) (segment.Tag, error) {
	old := s.tag(t.Name)
	if s.raw > 0 && !s.isUnmade() { // it was made before
		var err error
		if t.Rules, err = t.Rules.InOrderOf(old.Rules); err != nil {
			return t, err
		}
	}
	switch {
	case s.Disabled:
		return old.Revive(t, limit)
	case t.MaxID == 0 && (s.undecided || t.Rules.Bounded() && old.MaxID > 1):
		return t, errSayStart
	case t.MaxID == 0 || s.raw > 0 && !s.isUnmade():
		t.MaxID = max(t.MaxID, old.MaxID)
	case s.row != nil:
		t.MaxID = max(t.MaxID, s.row.MaxID)
	}
	t.Least, t.Disabled = old.Least, false
	return t, nil
}

// errSayStart is returned, after a resume of the registry, for a new tag without a start if the tag has a last number,
// or its column max_id no room above all earlier IDs. Any other new tag begins above those IDs.
var errSayStart = segment.RuleError("the registry was resumed, and the tag may have been in use before: say with " +
	"start where it goes on, above all its IDs, or that it is new with start 1")

// readFree returns the state of a tag that may be created, or why the tag may not be created.
func (s *Store) readFree(ctx context.Context, tag string, revive bool) (t state, err error) {
	if t, err = s.readMark(ctx, tag); err != nil {
		return t, err
	}
	if t.Disabled && !revive {
		return t, segment.ErrDisabled
	}
	exists := t.kve.Revision > 0
	if s.cfg.Table != nil {
		row, err := s.cfg.Table.Row(ctx, tag)
		if n, ok := errors.AsType[*segment.NameError](err); ok {
			return t, fmt.Errorf("%w as %q", segment.ErrExists, n.Found)
		}
		if exists = err == nil; exists {
			t.row = &row
		} else if !errors.Is(err, segment.ErrUnknownTag) {
			return t, err
		}
	}
	if exists && !t.Disabled && !t.Claimed {
		err = segment.ErrExists
	}
	return t, err
}

// insert writes an entry that claims the tag, inserts the missing row, and returns the new state of the entry.
//
// Law: a row is inserted only while the tag's mark (its next ID in the bucket) is current: Leaf nodes load from the row
// at once, and only the row remains if the marks are lost. So the entry is written first, which fails if the mark was
// old. If the bucket was lost after that write, no row is inserted.
func (s *Store) insert(ctx context.Context, t segment.Tag, was state, c *creation) (state, error) {
	e := was.entry
	e.Claimed, e.Step = !e.Disabled, max(e.Step, 1)
	if was.isMissing() {
		e.Mark, e.Era = 1, ""
	}
	was, err := s.put(ctx, t.Name, was, e, c) //mutant:row-again
	if err == nil && was.kve.Revision == 0 {
		err = errOvertaken // written, but perhaps replaced since
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return was, err
	}
	err = uncertain(s.cfg.Table.Insert(ctx, t))
	if errors.Is(err, segment.ErrExists) { // another call, or an operator, has inserted it
		err = errOvertaken
	}
	c.inserted = c.inserted || err == nil
	return was, err
}

// put writes e in place of the entry in the state was, as [Store.replace] does, or creates a missing entry. A delete
// marker shows that an entry was removed. Then put creates the entry only if c says at which number the tag starts:
// workers may have loaded IDs of the removed tag, and a default start could repeat them.
func (s *Store) put(ctx context.Context, tag string, was state, e entry, c *creation) (state, error) {
	if !was.isMissing() {
		return s.replace(ctx, tag, was, e)
	}
	if err := refused(tag); err != nil {
		return was, err
	}
	try := newCAS(0, "")
	e.Mark, e.Token = max(1, e.Mark), try.token
	s.sign(&e, was)
	create := s.kv.CreateFirst
	if c.tag.MaxID > 0 {
		create = s.kv.Create
	}
	revision, err := create(ctx, tag, e.encode())
	err = s.outcome(ctx, tag, try, written(err))
	s.raised(tag, was, e.Mark, err)
	switch {
	case errors.Is(err, buckets.ErrKeyRemoved) && c.revive:
		err = errRemoved
	case errors.Is(err, buckets.ErrKeyRemoved):
		err = segment.ErrUnknownTag
	case errors.Is(err, buckets.ErrKeyExists) && c.taken:
		err = segment.ErrExists // another worker's write is under way, and cannot be read yet
	case errors.Is(err, buckets.ErrKeyExists):
		c.taken = true
	}
	e.raw = e.Mark
	return state{kve: buckets.Entry{Revision: revision, Created: time.Now()}, entry: e}, err
}

// errRemoved is returned if a tag whose entry was deleted from the bucket is created without a start.
var errRemoved = segment.RuleError("the entry of the tag was deleted from the bucket of marks: say with start where " +
	"the tag goes on, above all its IDs")

// uncertain adds [segment.ErrUncertain] to an error of a change of the table that may have been made all the same.
func uncertain(err error) error {
	for _, certain := range []error{nil, segment.ErrExists, segment.ErrInvalid, segment.ErrNotApplied} {
		if errors.Is(err, certain) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", segment.ErrUncertain, err)
}

// half adds [segment.ErrUncertain] to the error of a change that was made in the entry, but not in the row.
func half(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: in the mark, but not in the table's row: %w", segment.ErrUncertain, err)
}

// Update implements [segment.Store]. It changes the entry by one compare-and-set, as a load does: a load that has read
// the entry before is refused, and starts over.
//
// With a table, step and description are the row's, and the entry has copies. The entry is changed first, so from then
// on no load of natsid begins below its mark. If the write to the row fails, the next poll raises the row. Values that
// the row cannot hold are refused before the entry is changed.
func (s *Store) Update(ctx context.Context, tag string, c segment.Change) (t segment.Tag, err error) {
	inRow := segment.Change{Step: c.Step, Description: c.Description}
	toRow := s.cfg.Table != nil && (c.Step != 0 || c.Description != nil)
	err = s.change(ctx, tag, func(e *entry) (err error) {
		if e.Disabled {
			return segment.ErrDisabled
		}
		if t, err = c.Apply(e.tag(tag, time.Now()), s.limit()); err == nil {
			err = s.mayDecide(ctx, *e, t)
		}
		if err != nil {
			return err
		}
		e.set(t) //mutant:raised
		if toRow {
			err = s.cfg.Table.Try(ctx, tag, inRow)
		}
		return err
	})
	if err != nil {
		return segment.Tag{}, err
	}
	if c.Raises() {
		inRow.MaxID = t.MaxID
	}
	if toRow || s.cfg.Table != nil && c.Raises() {
		err = half(s.cfg.Table.Update(ctx, tag, inRow))
	}
	return t, wrap(tag, err)
}

// mayDecide returns an error if t says where an undecided tag (how far it was loaded is unknown) continues, and an
// operator must not say that now.
//
// Law: what the operator says counts in one era, the time between two resumes of the registry. During an incident, a
// stop of all workers, it is refused: the resume that ends the incident begins another era, and until then workers
// still raise the marks of undecided tags to the highest IDs that they have loaded.
func (s *Store) mayDecide(ctx context.Context, was entry, t segment.Tag) error {
	if !was.undecided || t.Undecided {
		return nil
	}
	id, err := s.readIdentity(ctx)
	if err == nil && id.Incident != nil {
		err = segment.RuleError("the registry is stopped: where the tag goes on can be said once it is resumed")
	}
	return err
}

// Raise raises the mark of a tag to the max_id of its row, and copies the row's step and description into the entry.
func (s *Store) Raise(ctx context.Context, row segment.Row) error {
	return s.change(ctx, row.Name, func(e *entry) error {
		e.Seen, e.Step, e.Description, e.Claimed = max(e.Seen, row.MaxID), row.Step, row.Description, false
		return nil
	})
}
