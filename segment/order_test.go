package segment_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// strictly returns an allocator on a store with the tag a, of step 100, which is strict if so wanted. Each load takes
// 10 ms.
func strictly(t *testing.T, strict bool) (*segment.Allocator, *segmenttest.Faulty) {
	t.Helper()
	store := &segmenttest.Faulty{Store: new(segmenttest.Memory)}
	create(t, store, segment.Tag{Name: "a", Step: 100, MaxID: 1, Rules: segment.Rules{Strict: strict}})
	store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
		r, err := load()
		time.Sleep(10 * time.Millisecond) // the acknowledgement's way
		return r, err
	})
	a := segment.New(segment.Config{Store: store, Deadline: 1500 * time.Millisecond})
	t.Cleanup(a.Close)
	return a, store
}

// asked is a request whose answer arrives on the channel.
func asked(t *testing.T, a *segment.Allocator, n int64) <-chan segment.Range {
	t.Helper()
	if got, err := a.Next("a", n, nil); !errors.Is(err, segment.ErrWait) {
		t.Fatalf("memory answers %v, %v", got, err)
	}
	answer := make(chan segment.Range, 1)
	err := a.Park("a", n, func(got []segment.Range, err error) {
		if err != nil || len(got) != 1 {
			t.Errorf("answered %v, %v, want one range", got, err)
			got = make([]segment.Range, 1)
		}
		answer <- got[0]
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestARequestForMoreThanIsLeftUsesUpNothing(t *testing.T) {
	for _, strict := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a, store := strictly(t, strict)
			change := segment.Change{Rules: func(r segment.Rules) segment.Rules { r.Max = 10; return r }}
			if _, err := store.Update(t.Context(), "a", change); err != nil {
				t.Fatal(err)
			}
			// They wait for one load, in this order.
			wants := []struct{ n, left int64 }{{3, -1}, {20, 7}, {5, -1}, {3, 2}, {2, -1}, {1, 0}}
			errs := make([]error, len(wants))
			for i, w := range wants {
				_ = a.Park("a", w.n, func(_ []segment.Range, err error) { errs[i] = err })
			}
			time.Sleep(time.Second)
			synctest.Wait()
			for i, w := range wants {
				x, refused := errors.AsType[*segment.ExhaustedError](errs[i])
				if refused != (w.left >= 0) || refused && x.Left != w.left || !refused && errs[i] != nil {
					t.Errorf("strict %t: request %d, for %d IDs: %v", strict, i, w.n, errs[i])
				}
			}
			if _, err := segmenttest.Take(t.Context(), a, "a", 1); !errors.Is(err, segment.ErrExhausted) {
				t.Errorf("strict %t: then one: %v", strict, err)
			}
		})
	}
}

func TestWhatAStrictLoadBringsForNobodyIsAHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store := strictly(t, true)
		<-asked(t, a, 1) // its order is known
		store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
			defer time.Sleep(2 * time.Second) // longer than the deadline
			return load()
		})
		if _, err := segmenttest.Take(t.Context(), a, "a", 7); !errors.Is(err, segment.ErrNotLoaded) {
			t.Fatal(err)
		}
		store.OnLoad(nil)
		if got := <-asked(t, a, 1); got.Start < 9 {
			t.Errorf("%v from a load that was sent before", got)
		}
	})
}

// The first load of a tag reads its order, and all that arrived before its compare-and-set joins that.
func TestTheFirstRequestsOfAStrictTagJoinItsFirstLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store := strictly(t, true)
		loads := 0
		store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
			loads++
			time.Sleep(10 * time.Millisecond)
			return load()
		})
		first := asked(t, a, 2)
		time.Sleep(5 * time.Millisecond) // the order is being read
		second := asked(t, a, 3)
		if a.IsStrict("a") {
			t.Error("its order is known before it was read")
		}
		x, y := <-first, <-second
		if x != (segment.Range{Start: 1, End: 3}) || y != (segment.Range{Start: 3, End: 6}) || loads != 2 {
			t.Errorf("%v and %v after %d loads, want 1 to 5 after a read and a load", x, y, loads)
		}
		if s, _ := a.StatsOf("a"); !s.Strict || s.Left > 0 || s.Errors > 0 || !a.IsStrict("a") {
			t.Errorf("it is not known to be strict: %+v", s)
		}
		if f := a.Floors()["a"]; f.Rules == nil || !f.Rules.Strict {
			t.Errorf("its floor is %+v", f)
		}
	})
}

// A thousand strict tags may want more loads than the store can make.
func TestNoLoadOfAStrictTagBeginsThatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tags = 4000 // some 4 s of loads
		store := &segmenttest.Faulty{Store: new(segmenttest.Memory)}
		for i := range tags {
			create(t, store, segment.Tag{
				Name: fmt.Sprint("t", i), Step: 1, MaxID: 1, Rules: segment.Rules{Strict: true},
			})
		}
		a := segment.New(segment.Config{Store: store, Deadline: 1500 * time.Millisecond})
		defer a.Close()
		for i := range tags { // their order is known
			if _, err := segmenttest.Take(t.Context(), a, fmt.Sprint("t", i), 1); err != nil {
				t.Fatal(err)
			}
		}
		var answered, late, loads atomic.Int64
		store.OnLoad(func(ctx context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
			if loads.Add(1); answered.Load() == tags {
				late.Add(1)
			}
			select {
			case <-time.After(20 * time.Millisecond):
				return load()
			case <-ctx.Done():
				return segment.Range{}, ctx.Err()
			}
		})
		for i := range tags {
			if err := a.Park(fmt.Sprint("t", i), 1, func([]segment.Range, error) { answered.Add(1) }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		began := time.Now()
		if answered.Load() != tags || late.Load() > 0 || loads.Load() == 0 {
			t.Errorf("%d requests are answered; of %d loads %d began after that",
				answered.Load(), loads.Load(), late.Load())
		}
		store.OnLoad(nil)
		if _, err := segmenttest.Take(t.Context(), a, "t7", 1); err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("a request for which the store has time: %v after %v", err, time.Since(began))
		}
	})
}
