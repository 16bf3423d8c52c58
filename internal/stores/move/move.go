// Package move takes the tags of a namespace from one kind of store to the other; it is internal to natsid and may
// change.
//
// Marks stay in JetStream for both kinds: alone they are the store, beside MySQL they guard the table. So no ID is
// copied that could be copied late. A move completes the side that is missing, and then changes the kind in the
// identity of the bucket: from then on workers of the old kind refuse the marks, and those of the new kind start.
//
// Law: until each worker of the old kind has noticed, both kinds load. Each load raises the same mark by the same
// compare-and-set, so their ranges are disjoint. Loaders that know the table alone, as Leaf's, are not bound by marks:
// they must be stopped before a move away from MySQL, and may start after a move to it only once the rows were lifted
// to the marks, which each poll of a worker does.
package move

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/natsid/natsid/segment"
)

// A Tag is a tag to be moved, and its change.
type Tag struct {
	Name string `json:"tag"`
	From int64  `json:"from,string"` // the row's max_id, or the mark; 0 if there is none
	To   int64  `json:"to,string"`   // the new value of the row's max_id, or of the mark
}

// A Move is a plan. It can be carried out repeatedly: a plan made later leaves out completed changes.
type Move struct {
	Tags []Tag // in the order of names
	Kept int   // number of tags that need no change

	// Wrote, if set, is called with each write of a mark.
	Wrote segment.Wrote

	table segment.Table
	marks segment.Marks
	known map[string]segment.Mark
	rows  map[string]segment.Row
}

// read reads the marks and the rows.
func read(ctx context.Context, marks segment.Marks, table segment.Table) (*Move, error) {
	known, err := marks.AllMarks(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the marks: %w", err)
	}
	rows, err := table.AllRows(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the table: %w", err)
	}
	m := &Move{table: table, marks: marks, known: known, rows: make(map[string]segment.Row, len(rows))}
	for _, row := range rows {
		m.rows[row.Name] = row
	}
	return m, nil
}

// ToTable plans to make a row for each tag that is in the marks alone, and to raise rows below their marks. Deleted
// tags get no row: Leaf would serve it.
func ToTable(ctx context.Context, marks segment.Marks, table segment.Table) (*Move, error) {
	m, err := read(ctx, marks, table)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(m.known)) {
		mark, row := m.known[name], m.rows[name]
		switch {
		case mark.High > table.Limit():
			return nil, fmt.Errorf("the mark of tag %s is %d, and the column max_id of the table holds at most %d; "+
				"make it a bigint", name, mark.High, table.Limit())
		case row.Name == "" && mark.Disabled || row.MaxID >= mark.High:
			m.Kept++
		default:
			m.Tags = append(m.Tags, Tag{Name: name, From: row.MaxID, To: mark.High})
		}
	}
	return m, nil
}

// ToMarks plans to raise each mark to its row, and to create missing marks.
func ToMarks(ctx context.Context, marks segment.Marks, table segment.Table) (*Move, error) {
	m, err := read(ctx, marks, table)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(m.rows)) {
		mark, row := m.known[name], m.rows[name]
		if mark.High >= max(1, row.MaxID) && mark.Step == max(1, row.Step) {
			m.Kept++
			continue
		}
		m.Tags = append(m.Tags, Tag{Name: name, From: mark.High, To: max(1, mark.High, row.MaxID)})
	}
	return m, nil
}

// WriteRow carries out a plan of [ToTable] for one tag. It raises the row only if the row is lower, so loads that are
// above already are not disturbed.
func (m *Move) WriteRow(ctx context.Context, t Tag) error {
	if _, ok := m.rows[t.Name]; ok {
		_, err := m.table.Advance(ctx, t.Name, t.To-1, t.To)
		return err
	}
	mark := m.known[t.Name]
	return m.table.Insert(ctx, segment.Tag{
		Name: t.Name, MaxID: t.To, Step: max(1, mark.Step), Description: mark.Description,
	})
}

// WriteMark carries out a plan of [ToMarks] for one tag. If a worker has moved the mark since, it reads the mark
// again: a mark never goes down.
func (m *Move) WriteMark(ctx context.Context, t Tag) error {
	row := m.rows[t.Name]
	for {
		mark, err := m.marks.Mark(ctx, t.Name)
		if err != nil {
			return err
		}
		w := segment.Write{How: segment.ByLift, Before: mark.High, Read: mark.Revision, Replaced: mark.Updated}
		mark.High, mark.Seen = max(1, mark.High, row.MaxID), max(mark.Seen, row.MaxID)
		mark.Step, mark.Description = max(1, row.Step), row.Description
		w.After = mark.High
		if w.Written, err = m.marks.SetMark(ctx, t.Name, mark); errors.Is(err, segment.ErrMarkMoved) {
			continue
		}
		if m.Wrote != nil && !errors.Is(err, segment.ErrInvalid) {
			m.Wrote(t.Name, w)
		}
		return err
	}
}
