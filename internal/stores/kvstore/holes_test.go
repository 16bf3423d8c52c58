package kvstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// crowd lets 1,000 callers ask the allocators for up to 100,000 IDs each until ctx ends, and returns their IDs.
func crowd(ctx context.Context, workers []*segment.Allocator) (got []segment.Range) {
	var mu sync.Mutex
	var callers sync.WaitGroup
	for i := range 300 {
		callers.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Duration(rand.Int64N(int64(time.Second))))
				ranges, _ := segmenttest.Take(ctx, workers[i%len(workers)], "a", 1+rand.Int64N(100_000))
				mu.Lock()
				got = append(got, ranges...)
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	return got
}

// team returns allocators on one table and its marks, each with a guard of its own, that stop at the end of the test.
func team(t *testing.T, n int, table *segmenttest.Table, marks *memory) (workers []*segment.Allocator) {
	for range n {
		a := segment.New(segment.Config{Store: beside(table, marks), Deadline: 1500 * time.Millisecond})
		t.Cleanup(a.Close)
		workers = append(workers, a)
	}
	return workers
}

// These hooks let a write fail: for certain, or with an unknown outcome.
var errLost = errors.New("the answer was lost")

func refused(func() (bool, error)) (bool, error) { return false, segment.ErrNotApplied }
func lost(func() (bool, error)) (bool, error)    { return false, errLost }
func markAckLost(set func() error) error         { return errors.Join(set(), errLost) }

func TestFailingLoadsMoveTheMarkNoFurtherHoweverLongTheyFail(t *testing.T) {
	for name, tc := range map[string]struct {
		workers int
		advance segmenttest.AdvanceHook
		setMark writeHook
	}{
		"a table that refuses":               {1, refused, nil},
		"a table that does not answer":       {1, lost, nil},
		"neither do the marks":               {1, lost, markAckLost},
		"a table that refuses eight workers": {8, refused, nil},
		"a table that answers none of them":  {8, lost, nil},
		"and neither do the marks, to eight": {8, lost, markAckLost},
		"marks that are not written":         {3, nil, func(func() error) error { return errLost }},
	} {
		if testing.Short() && tc.workers > 3 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, table, marks := guarded(t, nil)
				workers := team(t, tc.workers, table, marks)
				table.OnAdvance(tc.advance)
				marks.onWrite(tc.setMark)
				mark := func() int64 { m := marks.mark("a"); return m.Mark }
				var first int64
				time.AfterFunc(10*time.Second, func() { first = mark() })
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if got := crowd(ctx, workers); len(got) > 0 {
					t.Fatalf("ranges %v from a table that fails", got)
				}
				if last := mark(); last > first+5000 || last > int64(tc.workers)*1000*100_000 {
					t.Errorf("the mark went from 1 to %d in 10 s, and to %d in 60 s", first, last)
				}
				table.OnAdvance(nil)
				marks.onWrite(nil)
				ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				got := crowd(ctx, workers)
				if n := repeats(got); n > 0 || len(got) < 1000 {
					t.Errorf("afterwards %d ranges, %d IDs twice", len(got), n)
				}
			})
		})
	}
}

// A range is lost for good if Leaf takes the reserved IDs, or if another worker writes before its outcome is known.
func TestALostRangeHalvesTheNextUntilALoadSucceeds(t *testing.T) {
	g, table, marks := guarded(t, nil)
	const asked = 1 << 20
	cost := int64(0)
	table.OnAdvance(func(func() (bool, error)) (bool, error) { // a Leaf node is always faster
		m := marks.mark("a")
		row := table.Snapshot()["a"]
		cost += m.Mark - row.MaxID
		for row.MaxID < m.Mark {
			row.MaxID = table.LoadAsLeaf("a").End
		}
		return false, errLost
	})
	for range 40 {
		if _, err := g.Load(t.Context(), "a", asked, 0); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
	}
	if cost < asked || cost > 2*asked+40 {
		t.Errorf("40 lost loads of %d IDs reserved %d together, want twice as many at most", asked, cost)
	}
	table.OnAdvance(nil)
	for _, want := range []int64{1, asked} {
		if l, err := g.Load(t.Context(), "a", asked, 0); err != nil || l.Len() != want {
			t.Errorf("then %v, %v, want %d IDs", l, err, want)
		}
	}
}
