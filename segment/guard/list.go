package guard

import (
	"context"
	"time"

	"github.com/natsid/natsid/segment"
)

// The marks are read as a whole, which takes 0.3 s for 100,000. So if there are
// more than fewMarks, pages of a list after the first go by marks that are up
// to marksAge old.
const (
	fewMarks = 2000
	marksAge = 2 * time.Second
)

// List implements [segment.Store].
func (g *Guard) List(ctx context.Context, after string, limit int) ([]segment.Tag, error) {
	if g.marks == nil {
		return g.table.Rows(ctx, after, limit)
	}
	marks, err := g.marksForList(ctx, after == "") // before the rows, lest a row look as if it had gone back
	if err != nil {
		return nil, err
	}
	rows, err := g.table.Rows(ctx, after, limit)
	for i := 0; i < len(rows) && err == nil; i++ {
		row, m := &rows[i], marks[rows[i].Name]
		if m.High > 0 && m.High < row.MaxID { // others took from the table, or the mark is old
			m, err = g.marks.Mark(ctx, row.Name)
		}
		if m.High > 0 {
			row.MarkAhead = new(m.High - row.MaxID)
		}
		*row = merged(*row, m)
	}
	return rows, err
}

func (g *Guard) marksForList(ctx context.Context, fresh bool) (map[string]segment.Mark, error) {
	g.mu.Lock()
	marks := g.listed
	g.mu.Unlock()
	if marks != nil && !fresh {
		return marks, nil
	}
	marks, err := g.marks.AllMarks(ctx)
	if err == nil && len(marks) > fewMarks {
		g.keepListed(marks)
		time.AfterFunc(marksAge, func() { g.keepListed(nil) })
	}
	return marks, err
}

func (g *Guard) keepListed(marks map[string]segment.Mark) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listed = marks
}
