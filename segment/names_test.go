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

func TestAnUnknownTagCostsOneLookUpForAWhile(t *testing.T) {
	var lookups atomic.Int64
	cfg := segment.Config{MaxWaiting: 20_000, OnLoad: func(string, time.Duration, error) { lookups.Add(1) }}
	followed(t, cfg, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
		store.OnLoad(slow(10 * time.Millisecond))
		var refused atomic.Int64
		for range 10_000 {
			if err := a.Park("unknown", 1, func(_ []segment.Range, err error) {
				if errors.Is(err, segment.ErrUnknownTag) {
					refused.Add(1)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		for range 100 {
			time.Sleep(29 * time.Millisecond)
			wantRefused(t, a, "unknown", segment.ErrUnknownTag)
		}
		if n := lookups.Load(); n != 1 || refused.Load() != 10_000 {
			t.Errorf("%d lookups, %d refused, want one for all of 3 s", n, refused.Load())
		}
		create(t, memory, segment.Tag{Name: "unknown", Step: 10, MaxID: 1})
		time.Sleep(200 * time.Millisecond)
		take(t, a, "unknown", 1) // found without poll or news, once the cached refusal has expired
	})
}

func TestATagWhoseRowCannotBeServedCostsOneLoadForAWhile(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty) {
		loads := 0
		store.OnLoad(func(context.Context, string, loadFunc) (segment.Range, error) {
			loads++
			return segment.Range{}, segment.ErrBadRow
		})
		for range 1000 {
			if _, err := segmenttest.Take(t.Context(), a, "a", 1); !errors.Is(err, segment.ErrBadRow) {
				t.Fatalf("%v, want ErrBadRow", err)
			}
		}
		if loads != 1 {
			t.Errorf("%d loads for 1000 requests", loads)
		}
		store.OnLoad(nil)
		time.Sleep(4 * time.Second)
		take(t, a, "a", 1)
	})
}

func TestAPollClearsACachedNotFound(t *testing.T) {
	followed(t, segment.Config{Poll: time.Second}, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
		time.Sleep(500 * time.Millisecond)
		wantRefused(t, a, "made", segment.ErrUnknownTag)
		create(t, memory, segment.Tag{Name: "made", Step: 10, MaxID: 1})
		wantRefused(t, a, "made", segment.ErrUnknownTag)
		time.Sleep(501 * time.Millisecond)
		take(t, a, "made", 1)
	})
}

func TestAFloodOfUnknownTagsReachesTheStoreAtABoundedRateAndDelaysNoKnownTag(t *testing.T) {
	var lookUps, inStore, most atomic.Int64
	cfg := segment.Config{OnLoad: func(tag string, _ time.Duration, err error) {
		if tag != "a" && tag != "b" {
			lookUps.Add(1)
		}
	}}
	followed(t, cfg, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
		store.OnLoad(func(ctx context.Context, tag string, load loadFunc) (segment.Range, error) {
			if tag == "a" || tag == "b" {
				return load()
			}
			n := inStore.Add(1)
			defer inStore.Add(-1)
			most.Store(max(most.Load(), n))
			return slow(2*time.Millisecond)(ctx, tag, load)
		})
		const second, asked = 2, 100_000
		var answered, wrong atomic.Int64
		var longest time.Duration
		for i := range second * asked {
			if i%200 == 0 {
				time.Sleep(2 * time.Millisecond)
				begin := time.Now()
				take(t, a, "a", 60)
				take(t, a, "b", 1)
				longest = max(longest, time.Since(begin))
			}
			done := func(_ []segment.Range, err error) {
				answered.Add(1)
				if !errors.Is(err, segment.ErrUnknownTag) {
					wrong.Add(1)
				}
			}
			if err := a.Park(fmt.Sprint("unknown", i), 1, done); err != nil {
				done(nil, err)
			}
		}
		time.Sleep(2 * time.Second)
		if n := answered.Load(); n != second*asked || wrong.Load() > 0 {
			t.Errorf("%d of %d answered, %d of them not with ErrUnknownTag", n, second*asked, wrong.Load())
		}
		if n := lookUps.Load(); n < 500 || n > 5000 || most.Load() > 4 {
			t.Errorf("%d lookups in 2 s and the burst, %d at once; want 1000 a second, 4 at once at most",
				n, most.Load())
		}
		if longest > 0 {
			t.Errorf("a known tag waited %v", longest)
		}
		if n := a.Stats().Tags; n > 2 {
			t.Errorf("%d tags in memory, want the 2 that exist", n)
		}
		create(t, memory, segment.Tag{Name: "made", Step: 10, MaxID: 1})
	})
}

func TestATagCreatedDuringAFloodIsServedAtOnceAfterItsNews(t *testing.T) {
	followed(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
		for i := range 20_000 {
			_ = a.Park(fmt.Sprint("unknown", i), 1, func([]segment.Range, error) {})
		}
		wantRefused(t, a, "made", segment.ErrUnknownTag)
		create(t, memory, segment.Tag{Name: "made", Step: 10, MaxID: 1})
		a.Changed("made")
		asked := time.Now()
		if take(t, a, "made", 1); time.Since(asked) > 0 {
			t.Errorf("it took %v", time.Since(asked))
		}
	})
}

func TestALookUpOlderThanTheNewsOfATagRefusesNoRequest(t *testing.T) {
	followed(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
		store.OnLoad(func(_ context.Context, tag string, load loadFunc) (segment.Range, error) {
			r, err := load()
			time.Sleep(100 * time.Millisecond) // the answer is on its way
			return r, err
		})
		got := make(chan error, 1)
		if err := a.Park("made", 1, func(_ []segment.Range, err error) { got <- err }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		create(t, memory, segment.Tag{Name: "made", Step: 10, MaxID: 1})
		a.Changed("made")
		if err := <-got; err != nil {
			t.Errorf("a request that waited while the tag was created: %v", err)
		}
	})
}
