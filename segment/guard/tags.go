package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/segment"
)

// Create implements [segment.Store].
func (g *Guard) Create(ctx context.Context, t segment.Tag, revive bool) (created segment.Tag, err error) {
	if err := t.Validate(); err != nil {
		return segment.Tag{}, err
	}
	if limit := g.table.Limit(); t.MaxID > limit {
		return segment.Tag{}, fmt.Errorf("%w: start %d, the table holds at most %d", segment.ErrInvalid, t.MaxID, limit)
	}
	err = retry(ctx, func() error {
		created, err = g.tryCreate(ctx, t, revive)
		return err
	})
	return created, err
}

func (g *Guard) tryCreate(ctx context.Context, t segment.Tag, revive bool) (segment.Tag, error) {
	m, row, err := g.readFree(ctx, t.Name, revive)
	if err != nil {
		return segment.Tag{}, err
	}
	// The row first: what it cannot hold must not change the mark. It begins at the mark or above, and every load
	// raises the mark before it uses an ID.
	t.MaxID, t.Updated = max(t.MaxID, m.High, row.MaxID), time.Now().UTC()
	if row.Name != "" {
		err = g.table.Update(ctx, t.Name, segment.Change{Step: t.Step, Description: &t.Description, MaxID: t.MaxID})
	} else {
		err = g.table.Insert(ctx, t)
	}
	if err != nil || !m.Disabled {
		return t, err
	}
	// IDs loaded before the tag was deleted are not issued any more.
	t.Least = t.MaxID
	m.High, m.Least, m.Disabled, m.Step, m.Description = t.MaxID, t.MaxID, false, t.Step, t.Description
	return t, g.setMark(ctx, t.Name, m)
}

// readFree returns mark and row of a tag that may be created, a row without a name if there is none; or why it may not.
func (g *Guard) readFree(ctx context.Context, tag string, revive bool) (segment.Mark, segment.Row, error) {
	m, err := g.mark(ctx, tag)
	if err == nil && m.Disabled && !revive {
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
		return m, segment.Row{}, g.mayCreate(ctx, m, revive)
	}
	if err == nil && !m.Disabled {
		err = segment.ErrExists
	}
	return m, row, err
}

// mayCreate returns why a tag without a row may not be created, nil if it may. Its row may be lost together with its
// mark: then other workers may have loaded it.
func (g *Guard) mayCreate(ctx context.Context, m segment.Mark, revive bool) error {
	if g.marks == nil || revive || m.Revision != 0 {
		return nil
	}
	return g.marks.MayCreate(ctx)
}

// Update implements [segment.Store].
//
// Step and description go to the row first, since what the row refuses must not change the mark. A raise goes to the
// mark first, as a load does: from then on no load of natsid begins below it. If the worker dies before it has raised
// the row, the next poll lifts the row. The row is raised on the condition that it is lower, so loads that are above
// already are not disturbed.
func (g *Guard) Update(ctx context.Context, tag string, c segment.Change) (t segment.Tag, err error) {
	err = retry(ctx, func() error {
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
		m.High, m.Least, m.Seen = max(1, t.MaxID), t.Least, max(m.Seen, row.MaxID)
		m.Step, m.Description = t.Step, t.Description
		if err := g.setMark(ctx, tag, m); err != nil {
			return segment.Tag{}, err
		}
	}
	if c.Raises() {
		_, err = g.table.Advance(ctx, tag, t.MaxID-1, t.MaxID)
	}
	return t, err
}

// merged returns a tag as its row and its mark together show it.
func merged(row segment.Row, m segment.Mark) segment.Tag {
	row.MaxID, row.Least, row.Disabled = max(row.MaxID, m.High), m.Least, m.Disabled
	if m.Updated.After(row.Updated) {
		row.Updated = m.Updated
	}
	return row
}

// Delete implements [segment.Store]. The row stays as it is: its owners decide about it, and its max_id is worth
// keeping.
func (g *Guard) Delete(ctx context.Context, tag string) error {
	if g.marks == nil {
		return segment.ErrUnguarded
	}
	return retry(ctx, func() error {
		m, row, err := g.read(ctx, tag)
		if err != nil || m.Disabled {
			return err
		}
		m.High, m.Seen, m.Disabled = max(1, m.High, row.MaxID), max(m.Seen, row.MaxID), true
		return g.setMark(ctx, tag, m)
	})
}

// Look implements [segment.Store]. Without marks a raise by an operator cannot be distinguished from a load. Then
// Least is max_id, and the caller discards all that it has loaded: that costs a hole, never a repeat.
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
