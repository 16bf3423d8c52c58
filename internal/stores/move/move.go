// Package move takes the tags of a namespace from a table into the marks that guard it; it is internal to natsid and
// may change.
//
// Marks stay in JetStream where they guard a table, too. So no ID is copied that could be copied late: a move raises
// marks that are below their rows, and then the kind in the identity of the bucket is changed. From then on workers
// with the table refuse the marks, and those without it start.
//
// Law: until each worker of the old kind has noticed, both kinds load. Each load raises the same mark by the same
// compare-and-set, so their ranges are disjoint. Loaders that know the table alone, as Leaf's, are not bound by marks:
// they must be stopped before.
package move

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/natsid/natsid/segment"
)

// A Tag is a tag whose mark is to be changed.
type Tag struct {
	Name string `json:"tag"`
	From int64  `json:"from,string"` // the mark; 0 if there is none
	To   int64  `json:"to,string"`   // the new value of the mark

	row segment.Row
}

// Plan returns the tags whose marks are missing, are below their rows or have another step, in the order of names, and
// how many tags need no change. A plan may be carried out repeatedly.
func Plan(ctx context.Context, marks segment.Marks, table segment.Table) (tags []Tag, kept int, err error) {
	known, err := marks.AllMarks(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read the marks: %w", err)
	}
	all, err := table.AllRows(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read the table: %w", err)
	}
	rows := make(map[string]segment.Row, len(all))
	for _, row := range all {
		rows[row.Name] = row
	}
	tags = []Tag{}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		mark, row := known[name], rows[name]
		if mark.High >= max(1, row.MaxID) && mark.Step == max(1, row.Step) {
			kept++
			continue
		}
		tags = append(tags, Tag{name, mark.High, max(1, mark.High, row.MaxID), row})
	}
	return tags, kept, nil
}

// Write raises the mark of a tag to its row, and calls wrote with each write. If a worker has moved the mark since, it
// reads the mark again: a mark never goes down.
func (t Tag) Write(ctx context.Context, marks segment.Marks, wrote segment.Wrote) error {
	for {
		mark, err := marks.Mark(ctx, t.Name)
		if err != nil {
			return err
		}
		w := segment.Write{How: segment.ByLift, Before: mark.High, Read: mark.Revision, Replaced: mark.Updated}
		mark.High, mark.Seen = max(1, mark.High, t.row.MaxID), max(mark.Seen, t.row.MaxID)
		mark.Step, mark.Description = max(1, t.row.Step), t.row.Description
		w.After = mark.High
		if w.Written, err = marks.SetMark(ctx, t.Name, mark); errors.Is(err, segment.ErrMarkMoved) {
			continue
		}
		if !errors.Is(err, segment.ErrInvalid) {
			wrote(t.Name, w)
		}
		return err
	}
}
