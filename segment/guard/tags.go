package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/attempt"
)

// Create implements [segment.Store].
func (g *Guard) Create(ctx context.Context, t segment.Tag, revive bool) (created segment.Tag, err error) {
	if err := t.Validate(); err != nil {
		return segment.Tag{}, err
	}
	if limit := g.table.Limit(); t.MaxID > limit {
		return segment.Tag{}, fmt.Errorf("%w: start %d, the table holds at most %d", segment.ErrInvalid, t.MaxID, limit)
	}
	inserted := false
	err = retry(ctx, func() error {
		created, err = g.tryCreate(ctx, t, revive, &inserted)
		return err
	})
	if inserted && err != nil {
		err = fmt.Errorf("%w: the row was made, but the mark was not changed: %w", segment.ErrUncertain, err)
	}
	return created, err
}

// tryCreate also sets inserted once it has made the row.
func (g *Guard) tryCreate(ctx context.Context, t segment.Tag, revive bool, inserted *bool) (segment.Tag, error) {
	m, row, err := g.readFree(ctx, t.Name, revive)
	if err != nil {
		return segment.Tag{}, err
	}
	noRow := row.Name == ""
	row.Name = t.Name
	if old := merged(row, m); !m.Disabled {
		t.MaxID, t.Least = max(t.MaxID, old.MaxID), old.Least
	} else if t, err = old.Revive(t, g.table.Limit()); err != nil {
		return segment.Tag{}, err
	}
	t.Updated = time.Now().UTC()
	if noRow {
		return t, g.insert(ctx, t, m, inserted)
	}
	return t, g.revive(ctx, t, m)
}

// insert creates the row of a tag, which begins at the mark m or above. If the mark is disabled, it still is then, and
// errOvertaken has the caller start over with the row. Of two at once one inserts the row.
//
// Law: a row may begin at a mark only if that was the present one: the row is what is left should the marks be lost,
// and what Leaf nodes load from. So the mark is first replaced by itself, which fails if an old read showed it. A read
// that is older than the tag's first mark shows none, and would go unnoticed.
func (g *Guard) insert(ctx context.Context, t segment.Tag, m segment.Mark, inserted *bool) error {
	if m.Revision > 0 {
		err := g.replace(ctx, t.Name, segment.ByCreate, m, m) //mutant:row-again
		if err != nil {
			return err
		}
	}
	if err := uncertain(g.table.Insert(ctx, t)); err != nil || !m.Disabled {
		return err
	}
	*inserted = true
	return errOvertaken
}

// revive enables the disabled mark m of a tag, and then gives the row what the tag has now. Of two at once one sets the
// mark, and only that one changes the row. What the row cannot hold is refused before the mark is changed.
func (g *Guard) revive(ctx context.Context, t segment.Tag, m segment.Mark) error {
	c := segment.Change{Step: t.Step, Description: &t.Description, MaxID: t.MaxID}
	if err := g.table.Try(ctx, t.Name, c); err != nil {
		return err
	}
	if err := g.change(ctx, segment.ByRevive, t, m); err != nil {
		return err
	}
	return half(g.table.Update(ctx, t.Name, c))
}

// change sets the mark m of a tag to what the tag has now. If it was replaced meanwhile, nothing is changed, and the
// caller starts over.
func (g *Guard) change(ctx context.Context, how segment.How, t segment.Tag, was segment.Mark) error {
	m := was
	m.High, m.Least, m.Disabled = max(1, t.MaxID, m.High), t.Least, t.Disabled //mutant:changed
	m.Step, m.Description = t.Step, t.Description
	return g.replace(ctx, t.Name, how, was, m)
}

// replace replaces a mark, as it was read, by m. If the outcome is not known, the mark is read again: it bears the
// write's token if the write has landed.
func (g *Guard) replace(ctx context.Context, tag string, how segment.How, was, m segment.Mark) error {
	try := attempt.New(m.Revision, attempt.Tokens(m.Tokens))
	m.Tokens = string(try.Tokens())
	err := g.write(ctx, tag, how, was, m)
	if err == nil || errors.Is(err, errOvertaken) || errors.Is(err, segment.ErrInvalid) {
		return err
	}
	err = fmt.Errorf("%w: %w", segment.ErrUncertain, err)
	now, again := g.mark(ctx, tag)
	if again != nil {
		return err
	}
	switch try.Outcome(now.Revision, attempt.Tokens(now.Tokens)) {
	case attempt.Landed:
		return nil
	case attempt.Refused:
		return errOvertaken
	}
	return err
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
// A raise is made in the mark first, as a load does: from then on no load of natsid begins below it, and if the mark
// was changed meanwhile nothing is changed. If the row then does not follow, the next poll lifts it. Step and
// description are the row's. What the row cannot hold is refused before the mark is changed.
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
	if !c.Raises() || g.marks == nil {
		return g.updateRow(ctx, t, inRow)
	}
	if c.Step != 0 || c.Description != nil {
		if err := g.table.Try(ctx, tag, inRow); err != nil {
			return segment.Tag{}, err
		}
	}
	//mutant:raised
	if err := g.change(ctx, segment.ByRaise, t, m); err != nil {
		return segment.Tag{}, err
	}
	return t, half(g.table.Update(ctx, tag, inRow))
}

// updateRow makes a change in the row alone, and returns the tag: t, or as others may have changed it meanwhile. The
// copies of step and description in the mark follow at once or, if that fails, at the next load.
func (g *Guard) updateRow(ctx context.Context, t segment.Tag, c segment.Change) (segment.Tag, error) {
	err := uncertain(g.table.Update(ctx, t.Name, c))
	if err != nil || g.marks == nil {
		return t, err
	}
	if m, row, err := g.read(ctx, t.Name); err == nil {
		t = merged(row, m)
		_ = g.change(ctx, segment.ByUpdate, t, m)
	}
	return t, nil
}

// merged returns a tag as its row and its mark together show it.
func merged(row segment.Row, m segment.Mark) segment.Tag {
	row.MaxID, row.Least, row.Disabled = max(row.MaxID, m.High), m.Least, m.Disabled //mutant:merged
	if m.Updated.After(row.Updated) {
		row.Updated = m.Updated
	}
	return row
}

// Delete implements [segment.Store]. The row stays as it is: its owners decide about it, and its max_id is worth
// keeping. Law: the mark keeps it, too, each time: Leaf nodes may load from a deleted tag until its row is removed, and
// one that is created again begins above that.
func (g *Guard) Delete(ctx context.Context, tag string) error {
	if g.marks == nil {
		return segment.ErrUnguarded
	}
	defer g.kept.Drop(tag)
	return retry(ctx, func() error {
		was, row, err := g.read(ctx, tag)
		if err != nil || was.Disabled && row.MaxID <= min(was.High, was.Seen) {
			return err
		}
		m := was
		m.High, m.Seen, m.Disabled = max(1, m.High, row.MaxID), max(m.Seen, row.MaxID), true //mutant:deleted
		return g.replace(ctx, tag, segment.ByDelete, was, m)
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
