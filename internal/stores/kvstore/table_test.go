package kvstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

func TestGuardedTableConforms(t *testing.T) {
	segmenttest.Run(t, func(*testing.T) func() segment.Store {
		table, marks := new(segmenttest.Table), new(memory)
		return func() segment.Store { return beside(table, marks) }
	})
}

// guarded returns a guard over a table with the tag a of step 100.
func guarded(t *testing.T, alarms *[]string) (*kvstore.Store, *segmenttest.Table, *memory) {
	t.Helper()
	table, marks := new(segmenttest.Table), new(memory)
	g := watched(table, marks, func(tag, message string) {
		if alarms != nil {
			*alarms = append(*alarms, tag+": "+message)
		}
	})
	create(t, g, segment.Tag{Name: "a", Step: 100, MaxID: 1})
	return g, table, marks
}

// repeats returns how many IDs of the ranges are in another one, too.
func repeats(ranges []segment.Range) (n int64) {
	slices.SortFunc(ranges, func(a, b segment.Range) int { return int(a.Start - b.Start) })
	for i, end := 1, ranges[0].End; i < len(ranges); i++ {
		n += max(0, min(end, ranges[i].End)-ranges[i].Start)
		end = max(end, ranges[i].End)
	}
	return n
}

func load(t *testing.T, s segment.Store) segment.Range {
	t.Helper()
	r, err := s.Load(t.Context(), "a", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r.Range
}

func TestATableThatLostCommitsMakesNoRepeatAndIsLifted(t *testing.T) {
	var alarms []string
	g, table, marks := guarded(t, &alarms)
	ranges := []segment.Range{load(t, g)}
	backup := table.Snapshot()
	for range 10 {
		ranges = append(ranges, load(t, g))
	}
	table.Restore(backup)
	other := beside(table, marks) // another worker: no memory of its own
	ranges = append(ranges, load(t, g), load(t, other))
	if n := repeats(ranges); n > 0 {
		t.Errorf("%d IDs twice", n)
	}
	if len(alarms) != 1 {
		t.Errorf("alarms %q, want one", alarms)
	}
	if got := table.Snapshot()["a"].MaxID; got != ranges[len(ranges)-1].End {
		t.Errorf("max_id is %d, want it lifted to the end of the last range, %d", got, ranges[len(ranges)-1].End)
	}
}

func TestARaiseThatTheRowDidNotFollowHoldsAndThePollLiftsTheRow(t *testing.T) {
	g, table, marks := guarded(t, nil)
	away := beside(&stubborn{Table: table, update: errors.New("away")}, marks)
	_, err := away.Update(t.Context(), "a", segment.Change{MaxID: 5000})
	if !errors.Is(err, segment.ErrUncertain) {
		t.Fatalf("error %v, want ErrUncertain: the raise was made in the mark", err)
	}
	if err := g.Poll(t.Context(), func(segment.Listing) {}); err != nil {
		t.Fatal(err)
	}
	if leaf := table.LoadAsLeaf("a"); leaf.Start != 5000 {
		t.Errorf("Leaf loads %v, want it from 5000", leaf)
	}
	if r := load(t, g); r.Start != 5100 {
		t.Errorf("then natsid %v, want it from 5100", r)
	}
}

func TestAStepThatTheTableRefusesLeavesTheMarkAlone(t *testing.T) {
	_, table, marks := guarded(t, nil)
	g := beside(&stubborn{Table: table, try: segment.ErrInvalid}, marks)
	_, err := g.Update(t.Context(), "a", segment.Change{Step: 1 << 32, MaxID: 5000})
	if !errors.Is(err, segment.ErrInvalid) {
		t.Fatal(err)
	}
	if m := marks.mark("a"); m.Mark > 1 || m.Least > 0 {
		t.Errorf("the mark is %+v", m)
	}
}

// stubborn is a table in which a row is not changed if an error is set.
type stubborn struct {
	*segmenttest.Table
	try, update error
	inserted    func() // if set, it is called after a row was inserted
}

func (s *stubborn) Insert(ctx context.Context, t segment.Tag) error {
	err := s.Table.Insert(ctx, t)
	if s.inserted != nil {
		s.inserted()
	}
	return err
}

func (s *stubborn) Try(context.Context, string, segment.Change) error { return s.try }

func (s *stubborn) Update(ctx context.Context, tag string, c segment.Change) error {
	if s.update != nil {
		return s.update
	}
	return s.Table.Update(ctx, tag, c)
}

// Workers that find a loss were started after it, so they know only the mark's seen.
func TestALoadRecordsTheHighestMaxIDThatWasEverRead(t *testing.T) {
	g, table, marks := guarded(t, nil)
	load(t, g)
	backup := table.Snapshot()
	table.LoadAsLeaf("a")
	load(t, g)
	for loss := range 2 {
		table.Restore(backup)
		alarms := 0
		if load(t, watched(table, marks, func(string, string) { alarms++ })); alarms != 1 {
			t.Errorf("loss %d: %d alarms, want one", loss, alarms)
		}
	}
}

// The worker that finds the loss was started after it, so it knows only the mark's seen.
func TestALossOfCommitsRaisesAnAlarmAlsoAfterARevival(t *testing.T) {
	g, table, marks := guarded(t, nil)
	load(t, g)
	poll := func(g *kvstore.Store) {
		if err := g.Poll(t.Context(), func(segment.Listing) {}); err != nil {
			t.Fatal(err)
		}
	}
	poll(g)
	backup := table.Snapshot()
	load(t, g)
	poll(g)
	if err := g.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Create(t.Context(), segment.Tag{Name: "a", Step: 100, MaxID: 1}, true); err != nil {
		t.Fatal(err)
	}
	table.Restore(backup)
	var alarms int
	poll(watched(table, marks, func(string, string) { alarms++ }))
	if alarms != 1 {
		t.Errorf("%d alarms, want one", alarms)
	}
}

func TestACreateThatTheTableRefusesLeavesTheNameFree(t *testing.T) {
	marks := new(memory)
	g := beside(&narrow{}, marks)
	_, err := g.Create(t.Context(), segment.Tag{Name: "a", Step: 1 << 32, MaxID: 5_000_000_000}, true)
	if !errors.Is(err, segment.ErrInvalid) || errors.Is(err, segment.ErrUncertain) {
		t.Fatal(err)
	}
	_, err = g.Look(t.Context(), "a")
	if !errors.Is(err, segment.ErrUnknownTag) || errors.Is(err, segment.ErrDisabled) {
		t.Errorf("a look: %v", err)
	}
	other := beside(new(segmenttest.Table), marks)
	create(t, other, segment.Tag{Name: "a", Step: 10, MaxID: 3})
	if r := load(t, other); r.Start != 3 {
		t.Errorf("created where the table takes it, and loaded from %d", r.Start)
	}
}

// narrow is a table that can hold no step.
type narrow struct{ segmenttest.Table }

func (*narrow) Insert(context.Context, segment.Tag) error { return segment.ErrInvalid }

func TestTheMarkFollowsWhatOthersTakeFromTheTable(t *testing.T) {
	var alarms []string
	g, table, _ := guarded(t, &alarms)
	load(t, g)
	backup := table.Snapshot()
	leaf := table.LoadAsLeaf("a")
	if err := g.Poll(t.Context(), func(segment.Listing) {}); err != nil {
		t.Fatal(err)
	}
	table.Restore(backup)
	if err := g.Poll(t.Context(), func(segment.Listing) {}); err != nil || len(alarms) != 1 {
		t.Errorf("alarms %q, %v, want one", alarms, err)
	}
	if got := table.Snapshot()["a"].MaxID; got != leaf.End {
		t.Errorf("max_id %d, want it lifted to %d", got, leaf.End)
	}
	if r := load(t, g); r.Start < leaf.End {
		t.Errorf("%v was Leaf's: %v", r, leaf)
	}
}

// Leaf takes the first ID of a range between the read of the row and its update.
func TestALoadUsesNoRangeThatLeafHasBegun(t *testing.T) {
	g, table, _ := guarded(t, nil)
	var leafs int64
	table.OnAdvance(func(advance func() (bool, error)) (bool, error) {
		if row := table.Snapshot()["a"]; leafs == 0 {
			leafs = row.MaxID
			row.MaxID++
			table.Restore(map[string]segment.Row{"a": row})
		}
		return advance()
	})
	if r := load(t, g); r.Start <= leafs {
		t.Errorf("loaded %v, of which Leaf has issued %d", r, leafs)
	}
}

func TestALoadReturnsWhenItsContextEnds(t *testing.T) {
	g, table, _ := guarded(t, nil)
	table.OnAdvance(func(func() (bool, error)) (bool, error) { return false, nil }) // always too late
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := g.Load(ctx, "a", 0, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestARowThatCannotBeServedSaysSo(t *testing.T) {
	g, table, _ := guarded(t, nil)
	for _, row := range []segment.Row{
		{Name: "a", Step: 0, MaxID: 1}, {Name: "a", Step: -5, MaxID: 1}, {Name: "a", Step: 1, MaxID: -9},
	} {
		table.Restore(map[string]segment.Row{"a": row})
		if _, err := g.Load(t.Context(), "a", 0, 0); !errors.Is(err, segment.ErrBadRow) {
			t.Errorf("%+v: %v, want ErrBadRow", row, err)
		}
	}
}

func TestChangesOfOneTagByTwoWorkersAtOnceBothLast(t *testing.T) {
	table, marks := new(segmenttest.Table), new(memory)
	one, other := beside(table, marks), beside(table, marks)
	create(t, one, segment.Tag{Name: "order", Step: 10, MaxID: 1})
	description := "orders"
	slow := &interrupted{Table: table, before: func() {
		if _, err := other.Update(t.Context(), "order", segment.Change{Step: 500}); err != nil {
			t.Error(err)
		}
	}}
	_, err := beside(slow, marks).Update(t.Context(), "order", segment.Change{Description: &description})
	got, _ := one.Look(t.Context(), "order")
	if row, _ := table.Row(t.Context(), "order"); err != nil || got.Step != 500 || row.Step != 500 ||
		got.Description != description || row.Description != description {
		t.Errorf("%+v, %v, row %+v: want the acknowledged step 500, and the description", got, err, row)
	}
}

// interrupted is a table in which something happens before the first update, or before or after the first listing.
type interrupted struct {
	*segmenttest.Table
	before, reads, read func()
}

func (i *interrupted) AllRows(ctx context.Context) ([]segment.Row, error) {
	if f := i.reads; f != nil {
		i.reads = nil
		f()
	}
	rows, err := i.Table.AllRows(ctx)
	if f := i.read; f != nil {
		i.read = nil
		f()
	}
	return rows, err
}

func (i *interrupted) Update(ctx context.Context, tag string, c segment.Change) error {
	if f := i.before; f != nil {
		i.before = nil
		f()
	}
	return i.Table.Update(ctx, tag, c)
}
