// Package guard protects a segment table that may lose commits, by marks kept elsewhere; it is internal to natsid and
// may change.
//
// A load of n IDs
//
//  1. reads the mark at revision r, then the row, without a lock:
//     a = max(max_id, mark, floor), b = a + max(n, step);
//  2. raises the mark to b by a compare-and-set on r; if that is refused it starts over;
//  3. sets max_id to b on the condition that it is at most a. If one row was changed and acknowledged, the range is
//     used; if none was, the load starts over.
//
// Step 2 alone keeps natsid's workers apart, whatever the table lost and whichever of two tables they write to. Step 3
// keeps them apart from loaders that know the table alone, as Leaf's, while the table does not go back.
//
// After an error in step 2 or 3 the next load uses the same range, if it is still this worker's: the entry of the
// mark bears the token of step 2, and the row has not passed a. So failing loads do not raise the mark without bound:
// see package attempt.
//
// The mark also holds seen, the highest max_id that was ever read. A row below it has gone back, which raises an
// alarm once. Every poll raises the marks to the max_id of the rows, so marks also cover IDs that Leaf nodes took, up
// to a poll interval late; and it lifts rows that are below their mark.
//
// A deleted tag is disabled in its mark; its row stays.
package guard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/stores/attempt"
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
	marks    tagMarks
	kept     attempt.Ranges
	setbacks setbacks
	clock    segment.Clock
	behind   behind
	listed   atomic.Pointer[map[string]segment.Mark] // for the pages of a list after the first; nil if none is cached
}

var _ segment.Store = (*Guard)(nil)

// Config is the callbacks of a guard. Its zero value has none.
type Config struct {
	// Alarm is called once for each loss of commits that is noticed.
	Alarm func(tag, message string)
	Wrote segment.Wrote
	Clock segment.Clock // nil is [segment.SystemClock]
}

// New returns a store on a table. A nil cfg has no callbacks.
func New(table segment.Table, marks segment.Marks, cfg *Config) *Guard {
	g := &Guard{
		table: table, marks: tagMarks{marks, func(string, segment.Write) {}},
		setbacks: setbacks{alarm: func(string, string) {}}, clock: segment.SystemClock,
	}
	if cfg != nil && cfg.Alarm != nil {
		g.setbacks.alarm = cfg.Alarm
	}
	if cfg != nil && cfg.Clock != nil {
		g.clock = cfg.Clock
	}
	if cfg != nil && cfg.Wrote != nil {
		g.marks.wrote = cfg.Wrote
	}
	return g
}

// errOvertaken means that another worker changed mark or row since they were read.
var errOvertaken = errors.New("guard: overtaken by another worker")

func isOvertaken(err error) bool { return errors.Is(err, errOvertaken) }

// retry calls f, which changes a tag, until f returns anything but errOvertaken, or ctx ends. Changes of a tag other
// than loads are rare; for loads see [jitter.Race].
func retry(ctx context.Context, f func() error) error {
	pauses := jitter.NewBackoff(time.Millisecond, 20*time.Millisecond)
	for {
		if err := f(); !isOvertaken(err) {
			return err
		}
		if err := jitter.Sleep(ctx, pauses.NextBackOff()); err != nil {
			return err
		}
	}
}

// Load implements [segment.Store].
func (g *Guard) Load(ctx context.Context, tag string, n, floor int64) (l segment.Loaded, err error) {
	return g.load(ctx, tag, floor, false, func(step int64) int64 { return max(n, step) })
}

// LoadStrict implements [segment.Store]. The marks keep the order: the table may lose commits.
func (g *Guard) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (l segment.Loaded, err error) {
	return g.load(ctx, tag, floor, true, func(int64) int64 { return join() })
}

// load loads as many IDs as wanted returns. It calls wanted with the step before each compare-and-set of the mark.
func (g *Guard) load(
	ctx context.Context, tag string, floor int64, strict bool, wanted func(step int64) int64,
) (l segment.Loaded, err error) {
	err = jitter.Race(ctx, isOvertaken, func() (uint64, error) {
		l, err = g.tryLoad(ctx, tag, floor, strict, wanted)
		return l.Write.Read, err
	})
	if err != nil {
		return segment.Loaded{}, err
	}
	return l, nil
}

func (g *Guard) tryLoad(
	ctx context.Context, tag string, floor int64, strict bool, wanted func(step int64) int64,
) (segment.Loaded, error) {
	began := g.setbacks.now()
	m, row, err := g.read(ctx, tag)
	if err == nil {
		err = servable(row, m)
	}
	if err != nil {
		return segment.Loaded{}, err
	}
	g.setbacks.check(row, m, began)
	n := wanted(m.Rules.Step(row.Step))
	if err := ctx.Err(); err != nil { // for example since another worker is to load; the kept range stays
		return segment.Loaded{}, err
	}
	// The table may have been seen higher since a range was reserved: then others took IDs of that range from the
	// table.
	least := max(row.MaxID, m.Seen, m.Least, floor)
	lowest, limit, err := m.Rules.Window(max(least, m.High), strict, g.clock)
	if err != nil {
		return segment.Loaded{}, err
	}
	l, reserved, err := g.kept.Next(tag, attempt.View{
		Revision: m.Revision, Written: m.Updated, Tokens: attempt.Tokens(m.Tokens), Mark: m.High,
		Lowest: max(least, lowest), Limit: min(limit, g.table.Limit()), Strict: strict,
	}, n)
	if err != nil {
		return segment.Loaded{}, err
	}
	//mutant:reserve
	if !reserved {
		err = g.reserve(ctx, row, m, &l)
	}
	if err == nil {
		err = g.advance(ctx, tag, l)
	}
	return segment.Loaded{Range: l.Range, Step: row.Step, Least: m.Least, Rules: m.Rules, Write: l.Write}, err
}

// servable returns why a tag has no IDs to load, or nil.
func servable(row segment.Row, m segment.Mark) error {
	if m.Disabled {
		return segment.ErrDisabled
	}
	if row.Step < 1 || row.MaxID < 1 {
		return fmt.Errorf("%w: step %d, max_id %d, want at least 1", segment.ErrBadRow, row.Step, row.MaxID)
	}
	return nil
}

// reserve raises the mark m of a row to the end of a load. If that fails, the load is kept.
func (g *Guard) reserve(ctx context.Context, row segment.Row, m segment.Mark, l *attempt.Load) error {
	m.High, m.Seen, m.Tokens = l.End, max(m.Seen, row.MaxID), string(l.Tokens())
	m.Step, m.Description = row.Step, row.Description
	m.Record.Load(time.Now(), l.Len())
	revision, err := g.marks.SetMark(ctx, row.Name, m)
	switch {
	case err == nil:
		l.Write.Written = revision
	case errors.Is(err, errOvertaken):
		g.kept.Refused(row.Name, *l)
	default:
		g.keep(row.Name, *l)
	}
	return err
}

// keep keeps the range of a load that failed.
func (g *Guard) keep(tag string, l attempt.Load) {
	g.kept.Keep(tag, l)
	if !l.Again() {
		g.marks.wrote(tag, l.Write)
	}
}

// advance raises the row to the end of a reserved load. If that fails, the load is kept. After an error the statement
// may still be carried out. So the range is used later only if the row is then at its start or below, and only after
// another statement on that condition was acknowledged: of all statements that raise the row from there one succeeds.
// A row at the range's end proves nothing, since a Leaf node may have raised it.
func (g *Guard) advance(ctx context.Context, tag string, l attempt.Load) error {
	done, err := g.table.Advance(ctx, tag, l.Start, l.End) //mutant:advance
	//mutant:advanced
	if err == nil && !done {
		err = errOvertaken
	}
	//mutant:confirmed
	if err != nil {
		g.keep(tag, l)
		return err
	}
	g.setbacks.acknowledged(tag, l.End)
	return nil
}

// read returns mark and row of a tag. It reads the mark first: a max_id below seen, which was recorded before the row
// was read, shows that the row went back.
func (g *Guard) read(ctx context.Context, tag string) (segment.Mark, segment.Row, error) {
	m, err := g.marks.Mark(ctx, tag)
	if err != nil {
		return segment.Mark{}, segment.Row{}, err
	}
	if m.Disabled {
		g.kept.Drop(tag)
	}
	row, err := g.table.Row(ctx, tag)
	return m, row, err
}
