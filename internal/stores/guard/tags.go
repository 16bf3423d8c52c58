package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/segment"
)

// Create implements [segment.Store].
//
// Law: no load of a tag succeeds before its rules are in force. So the mark of a tag with rules is disabled before the
// tag has a row, and enabled afterwards; of calls that create it at once, the one that enables the mark has created it,
// whoever has made the row. A tag without rules has a row first. If there is no mark then, the call has created the
// tag: a call with rules makes a mark before it looks for the row. Otherwise the call writes the mark, so that no other
// disables it as it was.
func (g *Guard) Create(ctx context.Context, t segment.Tag, revive bool) (created segment.Tag, err error) {
	if err := t.Validate(); err != nil {
		return segment.Tag{}, err
	}
	if first, limit := max(t.MaxID, t.Rules.Begins(time.Now())), g.table.Limit(); first > limit {
		return segment.Tag{}, fmt.Errorf("%w: start %d, the table holds at most %d", segment.ErrInvalid, first, limit)
	}
	var c creation
	err = retry(ctx, func() error {
		created, err = g.tryCreate(ctx, t, revive, &c)
		return err
	})
	if c.inserted && err != nil {
		err = fmt.Errorf("%w: the row was made, but the mark was not changed: %w", segment.ErrUncertain, err)
	}
	return created, err
}

// A creation is how far a call has created a tag.
type creation struct {
	inserted bool // its row, and the tag is not in force
}

// tryCreate takes one step of a creation. errOvertaken makes the caller take the next.
func (g *Guard) tryCreate(ctx context.Context, t segment.Tag, revive bool, c *creation) (segment.Tag, error) {
	m, row, err := g.readFree(ctx, t.Name, revive || c.inserted)
	if err != nil {
		return segment.Tag{}, err
	}
	t.Updated = time.Now().UTC()
	isPlain, noRow := t.Rules == segment.Rules{}, row.Name == ""
	switch {
	case noRow && m.Revision == 0 && !isPlain:
		first := segment.Mark{High: 1}
		return t, cmp.Or(g.marks.replace(ctx, t.Name, segment.ByCreate, m, first), errOvertaken)
	case noRow && !m.Disabled && (isPlain || m.Seen > 0):
		return g.insertEnabled(ctx, t, m, c)
	case noRow && !isPlain && m.Seen == 0:
		m.Disabled, m.Rules = true, t.Rules
	}
	row.Name = t.Name
	if was := merged(row, m); isNew(m) {
		t.MaxID = max(t.MaxID, was.MaxID)
	} else if t, err = was.Revive(t, g.table.Limit()); err != nil {
		return segment.Tag{}, err
	}
	if noRow {
		return t, g.insert(ctx, t, m, c)
	}
	return t, g.revive(ctx, t, m)
}

// isNew reports whether a disabled mark is that of a tag whose creation is under way, or was cut off, and which was
// never loaded. A load and a deletion record the row in Seen.
func isNew(m segment.Mark) bool { return m.Disabled && m.Seen == 0 }

// insertEnabled inserts the row of a tag whose mark m is enabled, or of which there is none. The tag may have lost its
// row: then another copy of the table may still have it, so that its mark stays enabled.
func (g *Guard) insertEnabled(
	ctx context.Context, t segment.Tag, m segment.Mark, c *creation,
) (segment.Tag, error) {
	t.MaxID, t.Least = max(t.MaxID, m.High), m.Least
	if err := g.insertRow(ctx, t, m); err != nil {
		return t, err
	}
	c.inserted = true
	err := retry(ctx, func() error {
		now, err := g.marks.Mark(ctx, t.Name)
		switch {
		case err != nil || now.Revision == 0:
			return err
		case now.Disabled && !isNew(now):
			return segment.ErrDisabled
		case !now.Disabled && now.Rules != t.Rules && m.Seen == 0:
			return segment.ErrExists // another call has enabled the tag
		}
		t.MaxID, t.Least = max(t.MaxID, now.High), max(t.Least, now.Least)
		return g.marks.change(ctx, segment.ByCreate, t, now)
	})
	return t, err
}

// insert inserts the row of a tag whose mark m is disabled, or is to be.
func (g *Guard) insert(ctx context.Context, t segment.Tag, m segment.Mark, c *creation) error {
	err := g.insertRow(ctx, t, m)
	if err == nil {
		c.inserted = true
	}
	if err == nil || errors.Is(err, segment.ErrExists) { // the latter: another call, or an operator, has inserted it
		return errOvertaken
	}
	return err
}

// insertRow inserts the row of a tag. If the tag has a mark, the row begins there or above, and the mark becomes m.
//
// Law: a row may begin at a mark only if that mark is current: if the marks are lost, the row alone remains, and Leaf
// nodes load from it. So the mark is written first, which fails if the read was old. A read that is older than the
// tag's first mark shows no mark, and is not noticed.
func (g *Guard) insertRow(ctx context.Context, t segment.Tag, m segment.Mark) error {
	if m.Revision > 0 {
		err := g.marks.replace(ctx, t.Name, segment.ByCreate, m, m) //mutant:row-again
		if err != nil {
			return err
		}
	}
	return uncertain(g.table.Insert(ctx, t))
}

// revive enables the disabled mark m of a tag, and then writes the new fields of the tag to the row. Of two
// concurrent calls one sets the mark, and only that one changes the row. Values that the row cannot hold are refused
// before the mark is changed.
func (g *Guard) revive(ctx context.Context, t segment.Tag, m segment.Mark) error {
	c := segment.Change{Step: t.Step, Description: &t.Description, MaxID: t.MaxID}
	if err := g.table.Try(ctx, t.Name, c); err != nil {
		return err
	}
	if err := g.marks.change(ctx, segment.ByRevive, t, m); err != nil {
		return err
	}
	return half(g.table.Update(ctx, t.Name, c))
}

// uncertain marks the error of a change of the table with [segment.ErrUncertain], unless it says that nothing was
// changed.
func uncertain(err error) error {
	for _, certain := range []error{nil, segment.ErrExists, segment.ErrInvalid, segment.ErrNotApplied} {
		if errors.Is(err, certain) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", segment.ErrUncertain, err)
}

// half marks the error of a change whose first half was made.
func half(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: in the mark, but not in the table's row: %w", segment.ErrUncertain, err)
}

// readFree returns mark and row of a tag that may be created, a row without a name if there is none; or why the tag
// may not be created.
func (g *Guard) readFree(ctx context.Context, tag string, revive bool) (segment.Mark, segment.Row, error) {
	m, err := g.marks.Mark(ctx, tag)
	if err == nil && m.Disabled && !revive && !isNew(m) {
		err = segment.ErrDisabled
	}
	if err != nil {
		return segment.Mark{}, segment.Row{}, err
	}
	row, err := g.table.Row(ctx, tag)
	if n, ok := errors.AsType[*segment.NameError](err); ok {
		return segment.Mark{}, segment.Row{}, fmt.Errorf("%w as %q", segment.ErrExists, n.Found)
	}
	if errors.Is(err, segment.ErrUnknownTag) {
		if revive || m.Revision != 0 {
			return m, segment.Row{}, nil
		}
		// Row and mark may both be lost: then other workers may have loaded IDs of the tag.
		return m, segment.Row{}, g.marks.MayCreate(ctx)
	}
	if err == nil && !m.Disabled {
		err = segment.ErrExists
	}
	return m, row, err
}

// Update implements [segment.Store].
//
// A raise is made in the mark first, as in a load: from then on no load of natsid begins below it. If the mark was
// changed since it was read, nothing is changed. If the write to the row then fails, the next poll lifts the row.
// Step and description are the row's. Values that the row cannot hold are refused before the mark is changed.
func (g *Guard) Update(ctx context.Context, tag string, c segment.Change) (t segment.Tag, err error) {
	err = retry(ctx, func() error {
		t, err = g.tryUpdate(ctx, tag, c)
		return err
	})
	return t, err
}

func (g *Guard) tryUpdate(ctx context.Context, tag string, c segment.Change) (segment.Tag, error) {
	m, row, err := g.read(ctx, tag)
	if err == nil && m.Disabled {
		err = segment.ErrDisabled
	}
	if err != nil {
		return segment.Tag{}, err
	}
	t, err := c.Apply(merged(row, m), g.table.Limit())
	if err != nil {
		return segment.Tag{}, err
	}
	t.Updated = time.Now().UTC()
	m.Seen = max(m.Seen, row.MaxID)
	inRow := segment.Change{Step: c.Step, Description: c.Description}
	if c.Raises() {
		inRow.MaxID = t.MaxID
	}
	if !c.Raises() && c.Rules == nil {
		return g.updateRow(ctx, t, inRow)
	}
	if c.Step != 0 || c.Description != nil {
		if err := g.table.Try(ctx, tag, inRow); err != nil {
			return segment.Tag{}, err
		}
	}
	//mutant:raised
	if err := g.marks.change(ctx, segment.ByRaise, t, m); err != nil {
		return segment.Tag{}, err
	}
	if inRow.Step == 0 && inRow.Description == nil && inRow.MaxID == 0 { // the rules alone
		return t, nil
	}
	return t, half(g.table.Update(ctx, tag, inRow))
}

// updateRow changes the row alone, and returns the tag: t, or the tag as read after the change. The copies of step
// and description in the mark follow at once or, if that fails, at the next load.
func (g *Guard) updateRow(ctx context.Context, t segment.Tag, c segment.Change) (segment.Tag, error) {
	err := uncertain(g.table.Update(ctx, t.Name, c))
	if err != nil {
		return t, err
	}
	if m, row, err := g.read(ctx, t.Name); err == nil {
		t = merged(row, m)
		_ = g.marks.change(ctx, segment.ByUpdate, t, m)
	}
	return t, nil
}

// merged returns the tag that a row and its mark describe together.
func merged(row segment.Row, m segment.Mark) segment.Tag {
	row.MaxID, row.Least, row.Disabled = max(row.MaxID, m.High), m.Least, m.Disabled //mutant:merged
	row.Rules = m.Rules
	if m.Updated.After(row.Updated) {
		row.Updated = m.Updated
	}
	return row
}

// Delete implements [segment.Store]. The row stays as it is, with its max_id: the owners of the table decide about
// it. Law: every call also raises the mark to the row's max_id: Leaf nodes may load from a deleted tag until its row
// is removed, and a tag created again begins above their IDs.
func (g *Guard) Delete(ctx context.Context, tag string) error {
	defer g.kept.Drop(tag)
	return retry(ctx, func() error {
		was, row, err := g.read(ctx, tag)
		if err != nil || was.Disabled && row.MaxID <= min(was.High, was.Seen) {
			return err
		}
		m := was
		m.High, m.Seen, m.Disabled = max(1, m.High, row.MaxID), max(m.Seen, row.MaxID), true //mutant:deleted
		return g.marks.replace(ctx, tag, segment.ByDelete, was, m)
	})
}

// Look implements [segment.Store].
func (g *Guard) Look(ctx context.Context, tag string) (segment.Tag, error) {
	m, row, err := g.read(ctx, tag)
	if err != nil {
		return segment.Tag{}, err
	}
	return merged(row, m), nil
}
