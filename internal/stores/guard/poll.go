package guard

import (
	"context"
	"errors"

	"github.com/natsid/natsid/segment"
)

// Poll implements [segment.Store]. It raises the mark of every tag to the present max_id of its row, so that marks
// also cover IDs which others took from the table, and lifts rows that went back: call it every minute or so. A tag
// without a row counts as removed: even if the table lost the row, the mark keeps its IDs.
func (g *Guard) Poll(ctx context.Context, see func(segment.Listing)) error {
	began := g.setbacks.now()
	marks, err := g.marks.AllMarks(ctx)
	if err != nil {
		return err
	}
	rows, err := g.table.AllRows(ctx)
	if err != nil {
		return err
	}
	tags := make([]segment.Tag, len(rows))
	for i, row := range rows {
		if marks[row.Name].Disabled {
			g.kept.Drop(row.Name)
		}
		tags[i] = merged(row, marks[row.Name])
	}
	g.setbacks.keepOnly(tags, began)
	see(segment.Listing{Tags: tags, Removed: func(string) bool { return true }})
	return g.behind.catchUp(ctx, rows, func(ctx context.Context, row segment.Row) error {
		return g.catchUp(ctx, row, marks[row.Name], began)
	})
}

// catchUp raises the mark to the row, or the row to the mark.
func (g *Guard) catchUp(ctx context.Context, row segment.Row, m segment.Mark, began uint64) error {
	g.setbacks.check(row, m, began)
	if row.MaxID < m.High {
		// Commits were lost, or a load failed after step 2. The row is lifted for the sake of loaders that
		// know the table alone. A load under way is overtaken and starts over.
		if _, err := g.table.Advance(ctx, row.Name, m.High-1, m.High); err != nil {
			return err
		}
	}
	if row.MaxID <= m.Seen || row.MaxID < 1 {
		return nil
	}
	was := m
	//mutant:caught-up
	m.High, m.Seen, m.Step, m.Description = max(m.High, row.MaxID), row.MaxID, row.Step, row.Description
	err := g.marks.write(ctx, row.Name, segment.ByPoll, was, m)
	if isOvertaken(err) || errors.Is(err, segment.ErrInvalid) {
		return nil // another worker was faster, or no tag can have that name
	}
	return err
}
