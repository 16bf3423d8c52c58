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

func TestWhatAStrictLoadBringsForNobodyIsAHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, store := strictly(t, true)
		store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
			defer time.Sleep(2 * time.Second) // longer than the deadline
			return load()
		})
		if _, err := segmenttest.Take(t.Context(), a, "a", 7); !errors.Is(err, segment.ErrNotLoaded) {
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
		if _, err := segmenttest.Take(t.Context(), a, "t7", 1); err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("a request for which the store has time: %v after %v", err, time.Since(began))
		}
	})
}
