package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/segment"
)

// Create implements [segment.Store].
func (g *Guard) Create(ctx context.Context, t segment.Tag, revive bool) (made segment.Tag, err error) {
	if err := t.Validate(); err != nil {
		return segment.Tag{}, err
	}
	if limit := g.table.Limit(); t.MaxID > limit {
		return segment.Tag{}, fmt.Errorf("%w: start %d, the table holds at most %d", segment.ErrInvalid, t.MaxID, limit)
	}
	err = again(ctx, func() error {
		made, err = g.tryCreate(ctx, t, revive)
		return err
	})
	return made, err
}

func (g *Guard) tryCreate(ctx context.Context, t segment.Tag, revive bool) (segment.Tag, error) {
	m, err := g.mark(ctx, t.Name)
	if err != nil {
		return segment.Tag{}, err
	}
	if m.Disabled && !revive {
		return segment.Tag{}, segment.ErrDisabled
	}
	row, err := g.table.Row(ctx, t.Name)
	exists := err == nil
	if exists && !m.Disabled {
		return segment.Tag{}, segment.ErrExists
	}
	if n, misnamed := errors.AsType[*segment.NameError](err); misnamed {
		return segment.Tag{}, fmt.Errorf("%w as %q", segment.ErrExists, n.Found)
	}
	if !exists && !errors.Is(err, segment.ErrUnknownTag) {
		return segment.Tag{}, err
	}
	// The row first: what it cannot hold must not touch the mark. It begins at
	// the mark or above, and every load raises the mark before it uses an ID.
	t.MaxID, t.Updated = max(t.MaxID, m.High, row.MaxID), time.Now().UTC()
	if exists {
		err = g.table.Update(ctx, t.Name, segment.Change{Step: t.Step, Description: &t.Description, MaxID: t.MaxID})
	} else {
		err = g.table.Insert(ctx, t)
	}
	if err != nil || !m.Disabled {
		return t, err
	}
	// What was loaded before it was deleted is not handed out any more.
	t.Least = t.MaxID
	m.High, m.Least, m.Disabled, m.Step, m.Description = t.MaxID, t.MaxID, false, t.Step, t.Description
	return t, g.setMark(ctx, t.Name, m)
}

// Update implements [segment.Store].
//
// What the row refuses must not touch the mark, so step and description go to
// the row first. A raise goes to the mark first, as a load does: once it is
// there no load of natsid's begins below, and a row that did not follow, since
// the worker died in between, is lifted by the next poll. The row is raised on
// condition that it is lower, so loads that went on above are left alone.
func (g *Guard) Update(ctx context.Context, tag string, c segment.Change) (t segment.Tag, err error) {
	err = again(ctx, func() error {
		t, err = g.tryUpdate(ctx, tag, c)
		return err
	})
	return t, err
}

func (g *Guard) tryUpdate(ctx context.Context, tag string, c segment.Change) (segment.Tag, error) {
	m, row, err := g.read(ctx, tag)
	if err != nil {
		return segment.Tag{}, err
	}
	if m.Disabled {
		return segment.Tag{}, segment.ErrDisabled
	}
	t, err := c.Apply(merged(row, m), g.table.Limit())
	if err != nil {
		return segment.Tag{}, err
	}
	t.Updated = time.Now().UTC()
	if c.Step != 0 || c.Description != nil {
		if err := g.table.Update(ctx, tag, segment.Change{Step: c.Step, Description: c.Description}); err != nil {
			return segment.Tag{}, err
		}
	}
	if g.marks != nil {
		m.High, m.Least, m.Seen, m.Step, m.Description = max(1, t.MaxID), t.Least, max(m.Seen, row.MaxID), t.Step, t.Description
		if err := g.setMark(ctx, tag, m); err != nil {
			return segment.Tag{}, err
		}
	}
	if c.Raises() {
		_, err = g.table.Advance(ctx, tag, t.MaxID-1, t.MaxID)
	}
	return t, err
}

// read returns mark and row of a tag. The mark is read first: a max_id below
// what the mark had seen before then is one that went back.
func (g *Guard) read(ctx context.Context, tag string) (segment.Mark, segment.Row, error) {
	m, err := g.mark(ctx, tag)
	if err != nil {
		return segment.Mark{}, segment.Row{}, err
	}
	row, err := g.table.Row(ctx, tag)
	return m, row, err
}

// merged returns a tag as its row and its mark together have it.
func merged(row segment.Row, m segment.Mark) segment.Tag {
	row.MaxID, row.Least, row.Disabled = max(row.MaxID, m.High), m.Least, m.Disabled
	if m.Updated.After(row.Updated) {
		row.Updated = m.Updated
	}
	return row
}

// Delete implements [segment.Store]. The row stays as it is: its owners decide, and
// its max_id is worth keeping.
func (g *Guard) Delete(ctx context.Context, tag string) error {
	if g.marks == nil {
		return segment.ErrUnguarded
	}
	return again(ctx, func() error {
		m, row, err := g.read(ctx, tag)
		if err != nil || m.Disabled {
			return err
		}
		m.High, m.Seen, m.Disabled = max(1, m.High, row.MaxID), max(m.Seen, row.MaxID), true
		return g.setMark(ctx, tag, m)
	})
}

// Look implements [segment.Store]. Without marks nothing tells whether max_id was
// raised by a load or by a change: then Least is max_id, and whoever looks
// throws away all it has loaded. That costs a hole, never a repeat.
func (g *Guard) Look(ctx context.Context, tag string) (segment.Tag, error) {
	m, row, err := g.read(ctx, tag)
	if err != nil {
		return segment.Tag{}, err
	}
	if g.marks == nil {
		m.Least = row.MaxID
	}
	return merged(row, m), nil
}

// Poll implements [segment.Store]. It raises the mark of every tag to the max_id that
// its row has by now, so that IDs others took from the table are covered too,
// and lifts a row that went back: so call it every minute or so. A tag without
// row was removed: whatever the table lost, the marks keep its IDs.
func (g *Guard) Poll(ctx context.Context, see func(segment.Listing)) error {
	var marks map[string]segment.Mark
	if g.marks != nil {
		var err error
		if marks, err = g.marks.AllMarks(ctx); err != nil {
			return err
		}
	}
	rows, err := g.table.AllRows(ctx)
	if err != nil {
		return err
	}
	tags := make([]segment.Tag, len(rows))
	for i, row := range rows {
		tags[i] = merged(row, marks[row.Name])
	}
	see(segment.Listing{Tags: tags, Removed: func(string) bool { return true }})
	if g.marks == nil {
		return nil
	}
	var faults []error
	for _, row := range rows {
		if err := g.catchUp(ctx, row, marks[row.Name]); err != nil {
			faults = append(faults, fmt.Errorf("tag %s: %w", row.Name, err))
		}
	}
	return errors.Join(faults...)
}

func (g *Guard) catchUp(ctx context.Context, row segment.Row, m segment.Mark) error {
	g.check(row, m)
	if row.MaxID < m.High {
		// Lost commits, or a load that came to nothing: lifted, the row is
		// right for those who know the table alone. A load that is under way
		// just now finds itself overtaken.
		if _, err := g.table.Advance(ctx, row.Name, m.High-1, m.High); err != nil {
			return err
		}
	}
	if row.MaxID <= m.Seen || row.MaxID < 1 {
		return nil
	}
	m.High, m.Seen, m.Step, m.Description = max(m.High, row.MaxID), row.MaxID, row.Step, row.Description
	err := g.marks.SetMark(ctx, row.Name, m)
	if errors.Is(err, segment.ErrMarkMoved) || errors.Is(err, segment.ErrInvalid) {
		return nil // somebody else knows more, or nobody can ask for it
	}
	return err
}
