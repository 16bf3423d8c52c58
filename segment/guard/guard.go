// Package guard is the second memory of a segment table: marks kept elsewhere that
// make sure that a table which lost commits repeats no ID. It is part of natsid's
// inside and may change.
package guard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/natsid/natsid/segment"
)

// A Guard is a [segment.Store] on a table, guarded by marks kept elsewhere.
//
// Law of uniqueness: a range [a, b) is used only if
//
//	a >= max(max_id, mark, floor) as read,
//	then the mark was raised to b by a compare-and-set from the revision read,
//	then max_id was set to b on the condition that it was at most a,
//
// and both writes were acknowledged. Of all loads that read one mark a single
// one raises it, so two Guards on the same marks never share an ID, whatever
// the table lost or whichever of two tables they write to; and since max_id
// moves on condition, neither does a loader that knows the table alone, as
// long as the table does not go back. No lock is held in between.
type Guard struct {
	table segment.Table
	marks segment.Marks // nil: no guard
	alarm func(tag, message string)

	mu sync.Mutex
	// raised holds ranges that the mark was raised for and the table refused
	// for sure: the next attempt uses them, so that retries do not run away.
	raised map[string]segment.Range
	// alarmed holds, for tags that went back, the max_id that was lost: one
	// event is one alarm.
	alarmed map[string]int64
	listed  map[string]segment.Mark // nil, or what further pages of a list go by
}

var _ segment.Store = (*Guard)(nil)

// New returns a store on a table. A nil marks leaves the table unguarded.
// alarm, if not nil, is told when the table went back.
func New(table segment.Table, marks segment.Marks, alarm func(tag, message string)) *Guard {
	if alarm == nil {
		alarm = func(string, string) {}
	}
	return &Guard{table: table, marks: marks, alarm: alarm, raised: make(map[string]segment.Range), alarmed: make(map[string]int64)}
}

// errAgain says that somebody else was faster.
var errAgain = errors.New("segment: somebody else was faster")

// Load implements [segment.Store].
func (g *Guard) Load(ctx context.Context, tag string, n, floor int64) (l segment.Loaded, err error) {
	err = again(ctx, func() error {
		l, err = g.tryLoad(ctx, tag, n, floor)
		return err
	})
	return l, err
}

// again calls f until it returns anything but errAgain or ctx ends. The pauses
// spread those who race for one tag; one of them wins each round.
func again(ctx context.Context, f func() error) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := f()
		if !errors.Is(err, errAgain) {
			return err
		}
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *Guard) tryLoad(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	l, err := g.reserve(ctx, tag, n, floor)
	if err != nil {
		return segment.Loaded{}, err
	}
	done, err := g.table.Advance(ctx, tag, l.Start, l.End)
	switch {
	case errors.Is(err, segment.ErrNotApplied):
		g.keep(tag, l.Range)
		return segment.Loaded{}, err
	case err != nil:
		return segment.Loaded{}, err // the range is a hole
	case !done:
		return segment.Loaded{}, errAgain // so it is here
	}
	return l, nil
}

// reserve returns a range that the mark has been raised for.
func (g *Guard) reserve(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	m, row, err := g.read(ctx, tag)
	if err != nil {
		return segment.Loaded{}, err
	}
	if m.Disabled {
		return segment.Loaded{}, segment.ErrDisabled
	}
	if row.Step < 1 || row.MaxID < 1 {
		return segment.Loaded{}, fmt.Errorf("%w: step %d, max_id %d, want at least 1", segment.ErrBadRow, row.Step, row.MaxID)
	}
	g.check(row, m)
	n = max(n, row.Step)
	// A kept range is above the mark that it was raised from, but the table
	// may have been seen higher since: then others took from it what it holds.
	if kept := g.kept(tag); kept.Len() >= n && kept.Start >= max(row.MaxID, m.Seen, m.Least, floor) {
		return segment.Loaded{Range: kept, Step: row.Step, Least: m.Least}, nil
	}
	r, err := segment.NextRange(max(row.MaxID, m.High), floor, n)
	if err == nil && r.End > g.table.Limit() {
		err = segment.ErrExhausted
	}
	if err != nil || g.marks == nil {
		return segment.Loaded{Range: r, Step: row.Step, Least: m.Least}, err
	}
	m.High, m.Seen, m.Step, m.Description = r.End, max(m.Seen, row.MaxID), row.Step, row.Description
	return segment.Loaded{Range: r, Step: row.Step, Least: m.Least}, g.setMark(ctx, tag, m)
}

// check raises the alarm if a row went back.
func (g *Guard) check(row segment.Row, m segment.Mark) {
	if row.MaxID >= m.Seen {
		return
	}
	g.mu.Lock()
	known := g.alarmed[row.Name] == m.Seen
	g.alarmed[row.Name] = m.Seen
	g.mu.Unlock()
	if !known {
		g.alarm(row.Name, fmt.Sprintf("max_id is %d and was %d: the database has lost commits; IDs go on from %d", row.MaxID, m.Seen, max(m.High, m.Seen)))
	}
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
		return errAgain
	}
	return err
}

// keep remembers a range that nobody can use but this process.
func (g *Guard) keep(tag string, r segment.Range) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.raised[tag] = r
}

// kept returns and forgets the range that keep remembered.
func (g *Guard) kept(tag string) segment.Range {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.raised[tag]
	delete(g.raised, tag)
	return r
}
