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
	if _, err := store.Create(t.Context(), segment.Tag{Name: "a", Step: 100, MaxID: 1}, false); err != nil {
		t.Fatal(err)
	}
	store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
		r, err := load()
		time.Sleep(10 * time.Millisecond) // the acknowledgement's way
		return r, err
	})
	a := segment.New(segment.Config{Store: store, Deadline: 1500 * time.Millisecond})
	t.Cleanup(a.Close)
	a.SetStrict(map[string]bool{"a": strict})
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

func TestAStrictRequestIsServedFromALoadThatWasSentAfterItArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := strictly(t, true)
		first := asked(t, a, 3)
		synctest.Wait() // its load was sent
		began := time.Now()
		second, third := asked(t, a, 2), asked(t, a, 5)
		for i, want := range []segment.Range{{Start: 1, End: 4}, {Start: 4, End: 6}, {Start: 6, End: 11}} {
			if got := <-[]<-chan segment.Range{first, second, third}[i]; got != want {
				t.Errorf("request %d got %v, want %v", i, got, want)
			}
		}
		if took := time.Since(began); took != 20*time.Millisecond {
			t.Errorf("they took %v, want two loads of 10ms", took)
		}
		if s, _ := a.StatsOf("a"); s.Left != 0 || s.Loads != 2 || !s.Strict {
			t.Errorf("%+v, want nothing in memory after two loads", s)
		}
	})
}

func TestATagThatBecomesStrictLosesItsMemoryAndWhatIsBeingLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := strictly(t, false)
		if got, err := a.Take(t.Context(), "a", 11); err != nil || got[0].End != 12 { // the next range is being loaded
			t.Fatal(got, err)
		}
		synctest.Wait()
		a.SetStrict(map[string]bool{"a": true})
		if got := <-asked(t, a, 1); got.Start != 201 {
			t.Errorf("then %v, want 201, above both ranges", got)
		}
		a.SetStrict(nil)
		if got, err := a.Take(t.Context(), "a", 1); err != nil || got[0].Start != 202 {
			t.Errorf("loose again it issues %v, %v", got, err)
		}
		if got, err := a.Next("a", 1, nil); err != nil || got[0].Start != 203 {
			t.Errorf("and not from memory: %v, %v", got, err)
		}
	})
}

func TestInDoubtRequestsWaitAndMemoryIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := strictly(t, false)
		if _, err := a.Take(t.Context(), "a", 1); err != nil {
			t.Fatal(err)
		}
		a.Doubt()
		began := time.Now()
		waits := asked(t, a, 1)
		time.AfterFunc(time.Second, func() { a.SetStrict(nil) })
		if got := <-waits; got.Start != 2 || time.Since(began) != time.Second {
			t.Errorf("%v after %v, want the ID 2 as soon as the tag is known to be loose", got, time.Since(began))
		}
		a.Doubt()
		began = time.Now()
		_, err := a.Take(t.Context(), "a", 1)
		if waited := time.Since(began); !errors.Is(err, segment.ErrNotLoaded) || waited > 1500*time.Millisecond {
			t.Errorf("a doubt that does not end: %v after %v", err, waited)
		}
		if _, err = a.Take(t.Context(), "b", 1); !errors.Is(err, segment.ErrNotLoaded) {
			t.Errorf("another tag: %v", err)
		}
		if _, held := a.StatsOf("b"); held {
			t.Error("a tag that nobody waits for any more is in memory, though it was never loaded")
		}
	})
}

func TestWhatAStrictLoadBringsForNobodyIsAHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store := strictly(t, true)
		store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
			defer time.Sleep(2 * time.Second) // longer than the deadline
			return load()
		})
		if _, err := a.Take(t.Context(), "a", 7); !errors.Is(err, segment.ErrNotLoaded) {
			t.Fatal(err)
		}
		store.OnLoad(nil)
		if got := <-asked(t, a, 1); got.Start < 8 {
			t.Errorf("%v from a load that was sent before", got)
		}
	})
}

// A thousand strict tags may want more loads than the store can make.
func TestNoLoadOfAStrictTagBeginsThatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tags = 4000 // some 4 s of loads
		store := &segmenttest.Faulty{Store: new(segmenttest.Memory)}
		strict := make(map[string]bool)
		for i := range tags {
			tag := fmt.Sprint("t", i)
			create(t, store, segment.Tag{Name: tag, Step: 1, MaxID: 1})
			strict[tag] = true
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
		a := segment.New(segment.Config{Store: store, Deadline: 1500 * time.Millisecond})
		defer a.Close()
		a.SetStrict(strict)
		for tag := range strict {
			if err := a.Park(tag, 1, func([]segment.Range, error) { answered.Add(1) }); err != nil {
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
		if _, err := a.Take(t.Context(), "t7", 1); err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("a request for which the store has time: %v after %v", err, time.Since(began))
		}
	})
}
