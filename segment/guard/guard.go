// Package guard protects a segment table that may lose commits, by marks kept elsewhere; it is internal to natsid and
// may change.
//
// A load of n IDs
//
//  1. reads the mark at revision r, then the row, without a lock:
//     a = max(max_id, mark, floor), b = a + max(n, step);
//  2. raises the mark to b by a compare-and-set on r; if that is refused it starts over, and if the outcome is unknown
//     the range is a hole;
//  3. sets max_id to b on the condition that it is at most a. If one row was changed and acknowledged, the range is
//     used; if none was, the load starts over; after an error the range is a hole.
//
// Step 2 alone keeps natsid's workers apart, whatever the table lost and whichever of two tables they write to. Step 3
// keeps them apart from loaders that know the table alone, as Leaf's, while the table does not go back.
//
// If the table certainly refused step 3, as when it is read-only, the range stays reserved and the next attempt
// uses it: so retries do not make the mark run away.
//
// The mark also holds seen, the highest max_id that was ever read. A row below it has gone back, which raises an alarm
// once. Every poll raises the marks to what the rows have by then, so IDs that Leaf nodes took are covered too, up to a
// poll interval late; and it lifts rows that are below their mark.
//
// A deleted tag is disabled in its mark; its row stays.
package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/segment"
)

// A Guard is a [segment.Store] on a table, guarded by marks kept elsewhere. It is safe for concurrent use.
//
// Law of uniqueness: a range [a, b) is used only if
//
//	a >= max(max_id, mark, floor) as read,
//	then the mark was raised to b by a compare-and-set from the revision read,
//	then max_id was set to b on the condition that it was at most a,
//
// and both writes were acknowledged. Of all loads that read one mark a single one raises it, so two Guards on the same
// marks never share an ID, whatever the table lost or whichever of two tables they write to; and since max_id moves on
// condition, neither does a loader that knows the table alone, as long as the table does not go back. No lock is held
// in between.
type Guard struct {
	table    segment.Table
	marks    segment.Marks // nil: no guard
	kept     keptRanges
	setbacks setbacks
	pages    pageMarks
}

var _ segment.Store = (*Guard)(nil)

// New returns a store on a table. If marks is nil the table is unguarded. alarm, if not nil, is called once for each
// loss of commits that is noticed.
func New(table segment.Table, marks segment.Marks, alarm func(tag, message string)) *Guard {
	if alarm == nil {
		alarm = func(string, string) {}
	}
	return &Guard{table: table, marks: marks, setbacks: setbacks{alarm: alarm}}
}

// errOvertaken says that another worker changed mark or row meanwhile.
var errOvertaken = errors.New("guard: overtaken by another worker")

// retry calls f until it returns anything but errOvertaken, or ctx ends. The pauses spread workers that race for one
// tag; one of them wins each round.
func retry(ctx context.Context, f func() error) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := f()
		if !errors.Is(err, errOvertaken) {
			return err
		}
		select {
		case <-time.After(jitter.UpTo(pause)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Load implements [segment.Store].
func (g *Guard) Load(ctx context.Context, tag string, n, floor int64) (l segment.Loaded, err error) {
	err = retry(ctx, func() error {
		l, err = g.tryLoad(ctx, tag, n, floor)
		return err
	})
	return l, err
}

func (g *Guard) tryLoad(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	l, err := g.reserve(ctx, tag, n, floor)
	if err != nil {
		return segment.Loaded{}, err
	}
	done, err := g.table.Advance(ctx, tag, l.Start, l.End)
	switch {
	case errors.Is(err, segment.ErrNotApplied):
		g.kept.put(tag, l.Range)
		return segment.Loaded{}, err
	case err != nil:
		return segment.Loaded{}, err // the range is a hole
	case !done:
		return segment.Loaded{}, errOvertaken // and here
	}
	return l, nil
}

// reserve returns a range that the mark was raised for.
func (g *Guard) reserve(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	m, row, err := g.read(ctx, tag)
	if err != nil {
		return segment.Loaded{}, err
	}
	if m.Disabled {
		return segment.Loaded{}, segment.ErrDisabled
	}
	if row.Step < 1 || row.MaxID < 1 {
		return segment.Loaded{}, fmt.Errorf("%w: step %d, max_id %d, want at least 1",
			segment.ErrBadRow, row.Step, row.MaxID)
	}
	g.setbacks.check(row, m)
	n = max(n, row.Step)
	l := segment.Loaded{Step: row.Step, Least: m.Least}
	// A kept range is above the mark that it was raised from, but the table may have been seen higher since: then
	// others took from it what the range holds.
	if kept := g.kept.take(tag); kept.Len() >= n && kept.Start >= max(row.MaxID, m.Seen, m.Least, floor) {
		l.Range = kept
		return l, nil
	}
	l.Range, err = segment.NextRange(max(row.MaxID, m.High), floor, n)
	if err == nil && l.End > g.table.Limit() {
		err = segment.ErrExhausted
	}
	if err != nil || g.marks == nil {
		return l, err
	}
	m.High, m.Seen, m.Step, m.Description = l.End, max(m.Seen, row.MaxID), row.Step, row.Description
	return l, g.setMark(ctx, tag, m)
}

// read returns mark and row of a tag. The mark is read first: a max_id below what the mark had seen before then is one
// that went back.
func (g *Guard) read(ctx context.Context, tag string) (segment.Mark, segment.Row, error) {
	m, err := g.mark(ctx, tag)
	if err != nil {
		return segment.Mark{}, segment.Row{}, err
	}
	row, err := g.table.Row(ctx, tag)
	return m, row, err
}

func (g *Guard) mark(ctx context.Context, tag string) (segment.Mark, error) {
	if g.marks == nil {
		return segment.Mark{}, nil
	}
	return g.marks.Mark(ctx, tag)
}

func (g *Guard) setMark(ctx context.Context, tag string, m segment.Mark) error {
	err := g.marks.SetMark(ctx, tag, m)
	if errors.Is(err, segment.ErrMarkMoved) {
		return errOvertaken
	}
	return err
}
