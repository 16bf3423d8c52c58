package kvstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

func TestAnUpdateThatARaiseOvertookChangesNothing(t *testing.T) {
	other, table, marks := guarded(t, nil)
	g := beside(table, &view{Streams: marks, before: func() {
		if _, err := other.Update(t.Context(), "a", segment.Change{MaxID: 6000}); err != nil {
			t.Error(err)
		}
	}})
	text := "changed"
	_, err := g.Update(t.Context(), "a", segment.Change{Step: 777, Description: &text, MaxID: 5000})
	if err == nil || !strings.Contains(err.Error(), "next_id is 6000") || errors.Is(err, segment.ErrUncertain) {
		t.Errorf("error %v, want that next_id is 6000 already", err)
	}
	if row := table.Snapshot()["a"]; row.Step != 100 || row.Description != "" || row.MaxID != 6000 {
		t.Errorf("the row is %+v, want it as the other left it", row)
	}
}

func TestTheLoserOfTwoRevivesChangesNothing(t *testing.T) {
	other, table, marks := guarded(t, nil)
	if err := other.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	g := beside(table, &view{Streams: marks, before: func() {
		if _, err := other.Create(t.Context(), segment.Tag{Name: "a", Step: 7, MaxID: 50}, true); err != nil {
			t.Error(err)
		}
	}})
	_, err := g.Create(t.Context(), segment.Tag{Name: "a", Step: 777, MaxID: 9000, Description: "loser"}, true)
	if !errors.Is(err, segment.ErrExists) {
		t.Errorf("error %v, want ErrExists", err)
	}
	if row := table.Snapshot()["a"]; row.Step != 7 || row.Description != "" || row.MaxID != 50 {
		t.Errorf("the row is %+v, want the winner's", row)
	}
}

func TestARowThatRefusesARevivedTagLeavesItDeleted(t *testing.T) {
	other, table, marks := guarded(t, nil)
	if err := other.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	before := marks.mark("a")
	g := beside(&stubborn{Table: table, try: segment.ErrInvalid}, marks)
	_, err := g.Create(t.Context(), segment.Tag{Name: "a", Step: 1 << 32, MaxID: 1}, true)
	if after := marks.mark("a"); !errors.Is(err, segment.ErrInvalid) || after != before {
		t.Errorf("%v, and the mark went from %+v to %+v", err, before, after)
	}
}

func TestARevivedTagIssuesNothingThatWasLoadedBeforeItWasDeleted(t *testing.T) {
	g, table, _ := guarded(t, nil)
	last := load(t, g)
	if err := g.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, rowIs := range []string{"there", "gone"} {
		got, err := g.Create(t.Context(), segment.Tag{Name: "a", Step: 5, MaxID: 1}, true)
		if err != nil || got.Least < last.End || got.MaxID < last.End || got.Disabled {
			t.Errorf("its row %s: %+v, %v, want Least at %d or above", rowIs, got, err, last.End)
		}
		l, err := g.Load(t.Context(), "a", 0, 0)
		if err != nil || l.Start < last.End || l.Least < last.End || l.Step != 5 {
			t.Errorf("its row %s: loaded %+v, %v, want it above %d", rowIs, l, err, last.End)
		}
		last = l.Range
		if err := g.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		table.Restore(nil)
	}
}

func TestATagWhoseRowWasRemovedContinuesAboveItsMark(t *testing.T) {
	g, table, marks := guarded(t, nil)
	last := load(t, g)
	table.Restore(nil)
	other := beside(table, marks)
	got, err := other.Create(t.Context(), segment.Tag{Name: "a", Step: 100, MaxID: 1}, false)
	if err != nil || got.MaxID != last.End {
		t.Errorf("created again: %+v, %v, want it from %d", got, err, last.End)
	}
	if n := repeats([]segment.Range{last, load(t, other)}); n > 0 {
		t.Errorf("%d IDs twice", n)
	}
}

func TestATagWhoseRowWasRemovedKeepsItsOrder(t *testing.T) {
	g, table, _ := guarded(t, nil)
	load(t, g)
	table.Restore(nil)
	tag := segment.Tag{Name: "a", Step: 100, Rules: segment.Rules{Strict: true}}
	if got, err := g.Create(t.Context(), tag, true); !errors.Is(err, segment.ErrInvalid) {
		t.Errorf("a loose tag is made again as a strict one: %+v, %v", got, err)
	}
}

func TestADeletedTagRemembersWhatLeafTook(t *testing.T) {
	for name, times := range map[string]int{"before it was deleted": 1, "before it was deleted once more": 2} {
		t.Run(name, func(t *testing.T) {
			g, table, _ := guarded(t, nil)
			load(t, g)
			var leaf segment.Range
			for range times {
				leaf = table.LoadAsLeaf("a")
				if err := g.Delete(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			}
			table.Restore(nil) // and then the row is removed
			got, err := g.Create(t.Context(), segment.Tag{Name: "a", Step: 100, MaxID: 1}, true)
			if err != nil || got.MaxID < leaf.End {
				t.Errorf("%+v, %v, but Leaf took %v", got, err, leaf)
			}
		})
	}
}

// A worker whose read is old takes a deleted tag, the row of which was removed, for one that lost its row, or for one
// that was deleted before it had issued its last IDs.
func TestAnOldReadMakesNoRowOfADeletedTag(t *testing.T) {
	g, table, marks := guarded(t, nil)
	load(t, g)
	enabled := marks.entry("a")
	if err := g.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	disabled := marks.entry("a")
	if _, err := g.Create(t.Context(), segment.Tag{Name: "a", Step: 100, MaxID: 1}, true); err != nil {
		t.Fatal(err)
	}
	load(t, g)
	if err := g.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	table.Restore(nil)
	for what, shown := range map[string]buckets.Entry{"enabled": enabled, "disabled": disabled} {
		behind := beside(table, &view{Streams: marks, shown: &shown})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if got, err := behind.Create(ctx, segment.Tag{Name: "a", Step: 100, MaxID: 1}, what == "disabled"); err == nil {
			t.Errorf("created: %+v, after a read of a mark: %s", got, what)
		}
		if row, err := table.Row(t.Context(), "a"); !errors.Is(err, segment.ErrUnknownTag) {
			t.Errorf("there is a row again: %+v, %v, after a read of a mark: %s", row, err, what)
		}
	}
}

// The row is made before the mark of a deleted tag is enabled. If another write of the mark comes in between, and the
// next attempt fails, the row stays.
func TestACreateThatFailsAfterItMadeTheRowMayHaveBeenMade(t *testing.T) {
	refused := errors.New("refused")
	for name, fail := range map[string]func(ctx context.Context, other *kvstore.Store, table *stubborn) error{
		"the row takes no change": func(_ context.Context, _ *kvstore.Store, table *stubborn) error {
			table.try = refused
			return refused
		},
		"another create comes first": func(ctx context.Context, other *kvstore.Store, _ *stubborn) error {
			if _, err := other.Create(ctx, segment.Tag{Name: "a", Step: 7, MaxID: 50}, true); err != nil {
				t.Error(err)
			}
			return segment.ErrExists
		},
	} {
		other, table, marks := guarded(t, nil)
		if err := other.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		table.Restore(nil) // an operator removes the row
		var want error
		rows := &stubborn{Table: table}
		enabled := &view{Streams: marks}
		g := beside(rows, enabled)
		rows.inserted = func() {
			enabled.before = func() {
				want = fail(t.Context(), other, rows)
				again := marks.entry("a") // as another worker's write makes it
				again.Revision += 100
				marks.put("a", again)
			}
		}
		_, err := g.Create(t.Context(), segment.Tag{Name: "a", Step: 100, MaxID: 1}, true)
		if !errors.Is(err, segment.ErrUncertain) || !errors.Is(err, want) {
			t.Errorf("%s: %v, want ErrUncertain and %v", name, err, want)
		}
		if _, err := table.Row(t.Context(), "a"); err != nil {
			t.Errorf("%s: no row was made: %v", name, err)
		}
	}
}

func TestAMarkBelowWhatWasLoadedShowsThatTheBucketWentBackWhateverTheRowIs(t *testing.T) {
	var shown []string
	table, marks := new(segmenttest.Table), new(memory)
	g := kvstore.New(marks, kvstore.Config{
		Bucket: "marks", Table: table, WentBack: func(why string, _ int64) { shown = append(shown, why) },
	})
	create(t, g, segment.Tag{Name: "a", Step: 10, MaxID: 1})
	old := marks.entry("a")
	floor := load(t, g).End
	if l, err := g.Load(t.Context(), "a", 0, floor); err != nil || l.Start != floor || len(shown) > 0 {
		t.Fatalf("%v, %v, shown %q: nothing went back", l, err, shown)
	}
	for i, entry := range []buckets.Entry{old, {}} { // one from before, and none
		marks.put("a", entry)
		if l, err := g.Load(t.Context(), "a", 0, floor); err == nil || len(shown) != i+1 {
			t.Errorf("loaded %v, %v, shown %q", l, err, shown)
		}
	}
}
