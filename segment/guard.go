package segment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A Table is a database that keeps one max_id per tag and can go back: to a
// backup, to a replica that had not seen the last commits. Others may write to
// it as well. All methods are safe for concurrent use.
type Table interface {
	// Row returns the row of a tag as it is now. It returns [ErrUnknownTag], or
	// a [*NameError] if the row that the database finds has another name.
	Row(ctx context.Context, tag string) (Row, error)
	// Advance sets max_id to end if it is at most start, in one step, and
	// reports whether it did. [ErrNotApplied] says that it surely did not;
	// after any other error it may have, or may yet.
	Advance(ctx context.Context, tag string, start, end int64) (bool, error)
	// Insert makes a row. It returns [ErrExists] if there is one.
	Insert(ctx context.Context, t Tag) error
	// Update changes of a row what c says and nothing else, in one step: others
	// may change the rest meanwhile. It raises max_id to c.MaxID if it is lower;
	// c.RaiseBy is 0.
	Update(ctx context.Context, tag string, c Change) error
	// Rows returns at most limit rows whose names are above after, in the order
	// of names, byte by byte.
	Rows(ctx context.Context, after string, limit int) ([]Row, error)
	// AllRows returns all rows, in no order, with one query.
	AllRows(ctx context.Context) ([]Row, error)
	// Limit returns the highest max_id the table can hold.
	Limit() int64
}

// A Row is a tag as a table has it. Its step may be one that cannot be served.
type Row = Tag

// Marks is the second memory that guards a table: per tag a high-water mark
// that only rises. All methods are safe for concurrent use.
type Marks interface {
	// Mark returns the mark of a tag; a zero one if there is none.
	Mark(ctx context.Context, tag string) (Mark, error)
	// SetMark replaces the mark of a tag if its revision is m.Revision, 0 if
	// there is none. m.High must not be below the one that was read. It returns
	// [ErrInvalid] for a tag that cannot have a mark, and [ErrMarkMoved] if it is another; after any
	// other error it may have been set, or may yet be.
	SetMark(ctx context.Context, tag string, m Mark) error
	// AllMarks returns the marks of all tags, possibly a little old.
	AllMarks(ctx context.Context) (map[string]Mark, error)
}

// A Mark is what is remembered of a tag outside its table.
type Mark struct {
	High     int64     // no ID below it is ever handed out again
	Seen     int64     // highest max_id of the table that was ever read
	Least    int64     // the tag's [Tag.Least]
	Disabled bool      // the tag was deleted
	Revision uint64    // of this entry; 0 if there is none
	Updated  time.Time // of the last change; not to be set
	// Step and Description are the row's, so that the marks alone can serve
	// the tag one day.
	Step        int64
	Description string
}

var (
	// ErrNotApplied is returned by [Table.Advance] when it surely changed nothing.
	ErrNotApplied = errors.New("segment: the table was not changed")
	// ErrMarkMoved is returned by [Marks.SetMark] when somebody else set it.
	ErrMarkMoved = errors.New("segment: the mark was moved")
	// ErrBadRow is returned when a tag's row cannot be served as it stands.
	ErrBadRow = errors.New("segment: the tag's row cannot be served")
	// ErrUnguarded is returned when something needs a guard and there is none.
	ErrUnguarded = errors.New("segment: a tag is deleted in the guard, and there is none")
)

// A NameError says that the database, whose collation ignores case, found a
// row whose name differs from the tag that was asked. It is an [ErrUnknownTag].
type NameError struct{ Asked, Found string }

func (e *NameError) Error() string {
	return fmt.Sprintf("segment: no tag %q, the table has %q", e.Asked, e.Found)
}

// Unwrap returns [ErrUnknownTag].
func (e *NameError) Unwrap() error { return ErrUnknownTag }

// A Guard is a [Store] on a table, guarded by marks kept elsewhere.
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
	table Table
	marks Marks // nil: no guard
	alarm func(tag, message string)

	mu sync.Mutex
	// raised holds ranges that the mark was raised for and the table refused
	// for sure: the next attempt uses them, so that retries do not run away.
	raised map[string]Range
	// alarmed holds, for tags that went back, the max_id that was lost: one
	// event is one alarm.
	alarmed map[string]int64
	listed  map[string]Mark // nil, or what further pages of a list go by
}

var _ Store = (*Guard)(nil)

// NewGuard returns a store on a table. A nil marks leaves the table unguarded.
// alarm, if not nil, is told when the table went back.
func NewGuard(table Table, marks Marks, alarm func(tag, message string)) *Guard {
	if alarm == nil {
		alarm = func(string, string) {}
	}
	return &Guard{table: table, marks: marks, alarm: alarm, raised: make(map[string]Range), alarmed: make(map[string]int64)}
}

// errAgain says that somebody else was faster.
var errAgain = errors.New("segment: somebody else was faster")

// Load implements [Store].
func (g *Guard) Load(ctx context.Context, tag string, n, floor int64) (l Loaded, err error) {
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

func (g *Guard) tryLoad(ctx context.Context, tag string, n, floor int64) (Loaded, error) {
	l, err := g.reserve(ctx, tag, n, floor)
	if err != nil {
		return Loaded{}, err
	}
	done, err := g.table.Advance(ctx, tag, l.Start, l.End)
	switch {
	case errors.Is(err, ErrNotApplied):
		g.keep(tag, l.Range)
		return Loaded{}, err
	case err != nil:
		return Loaded{}, err // the range is a hole
	case !done:
		return Loaded{}, errAgain // so it is here
	}
	return l, nil
}

// reserve returns a range that the mark has been raised for.
func (g *Guard) reserve(ctx context.Context, tag string, n, floor int64) (Loaded, error) {
	m, row, err := g.read(ctx, tag)
	if err != nil {
		return Loaded{}, err
	}
	if m.Disabled {
		return Loaded{}, ErrDisabled
	}
	if row.Step < 1 || row.MaxID < 1 {
		return Loaded{}, fmt.Errorf("%w: step %d, max_id %d, want at least 1", ErrBadRow, row.Step, row.MaxID)
	}
	g.check(row, m)
	n = max(n, row.Step)
	// A kept range is above the mark that it was raised from, but the table
	// may have been seen higher since: then others took from it what it holds.
	if kept := g.kept(tag); kept.Len() >= n && kept.Start >= max(row.MaxID, m.Seen, m.Least, floor) {
		return Loaded{kept, row.Step, m.Least}, nil
	}
	r, err := NextRange(max(row.MaxID, m.High), floor, n)
	if err == nil && r.End > g.table.Limit() {
		err = ErrExhausted
	}
	if err != nil || g.marks == nil {
		return Loaded{r, row.Step, m.Least}, err
	}
	m.High, m.Seen, m.Step, m.Description = r.End, max(m.Seen, row.MaxID), row.Step, row.Description
	return Loaded{r, row.Step, m.Least}, g.setMark(ctx, tag, m)
}

// check raises the alarm if a row went back.
func (g *Guard) check(row Row, m Mark) {
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

func (g *Guard) mark(ctx context.Context, tag string) (Mark, error) {
	if g.marks == nil {
		return Mark{}, nil
	}
	return g.marks.Mark(ctx, tag)
}

func (g *Guard) setMark(ctx context.Context, tag string, m Mark) error {
	err := g.marks.SetMark(ctx, tag, m)
	if errors.Is(err, ErrMarkMoved) {
		return errAgain
	}
	return err
}

// keep remembers a range that nobody can use but this process.
func (g *Guard) keep(tag string, r Range) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.raised[tag] = r
}

// kept returns and forgets the range that keep remembered.
func (g *Guard) kept(tag string) Range {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.raised[tag]
	delete(g.raised, tag)
	return r
}
