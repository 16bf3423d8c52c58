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

// steady requests one ID at that interval, for d, and returns how many requests had to wait, and the longest wait.
func steady(t *testing.T, a *segment.Allocator, tag string, every, d time.Duration) (waits int, longest time.Duration) {
	t.Helper()
	for begin, i := time.Now(), time.Duration(0); i*every < d; i++ {
		if ahead := i*every - time.Since(begin); ahead > 0 {
			time.Sleep(ahead)
		}
		asked := time.Now()
		take(t, a, tag, 1)
		if w := time.Since(asked); w > 0 {
			waits, longest = waits+1, max(longest, w)
		}
	}
	return waits, longest
}

func TestNoRequestWaitsForASlowStoreOnceTheSpeedIsKnown(t *testing.T) {
	for _, most := range []int64{1000, 1_000_000} { // the step may help, or not
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			inBubble(t, segment.Config{MaxStep: most}, func(t *testing.T, a *allocator, store *faulty) {
				store.OnLoad(slow(200 * time.Millisecond))
				take(t, a, "a", 1)
				steady(t, a, "a", 500*time.Microsecond, 3*time.Second)
				if waits, longest := steady(t, a, "a", 500*time.Microsecond, 10*time.Second); waits > 0 {
					t.Errorf("%d requests waited, up to %v", waits, longest)
				}
			})
		})
	}
}

func TestNoRequestWaitsForALoadUpToTwiceAsSlowAsEarlierOnes(t *testing.T) {
	// No step that grows helps: 2000 IDs/s in ranges of 100.
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		take(t, a, "a", 1)
		for d := 10 * time.Millisecond; d < 160*time.Millisecond; d = d * 19 / 10 {
			store.OnLoad(slow(d))
			if waits, longest := steady(t, a, "a", 500*time.Microsecond, 5*time.Second); waits > 0 {
				t.Errorf("loads of %v: %d requests waited, up to %v", d, waits, longest)
			}
		}
	})
}

func TestABurstOnASlowStoreIsMetWithTheSecondLoad(t *testing.T) {
	inBubble(t, segment.Config{MaxStep: 1_000_000}, func(t *testing.T, a *allocator, store *faulty) {
		store.OnLoad(slow(200 * time.Millisecond))
		var last time.Duration
		for begin := time.Now(); time.Since(begin) < 3*time.Second; time.Sleep(time.Millisecond) {
			if _, err := a.Next("a", 5, nil); err != nil {
				_ = a.Park("a", 5, func([]segment.Range, error) {})
				last = time.Since(begin)
			}
		}
		if last > 400*time.Millisecond {
			t.Errorf("requests still waited after %v", last)
		}
	})
}

func TestAChainIsBounded(t *testing.T) {
	inBubble(t, segment.Config{MaxStep: 100}, func(t *testing.T, a *allocator, store *faulty) {
		store.OnLoad(slow(300 * time.Millisecond)) // so no request expires: the IDs loaded for it would be left
		var most int64
		for i := range 2000 {
			if i < 1000 { // 2000 IDs/s: four loads are 2400
				_ = a.Park("a", 20, func([]segment.Range, error) {})
			}
			s, _ := a.StatsOf("a")
			most = max(most, s.Left)
			time.Sleep(10 * time.Millisecond)
		}
		if most < 500 || most > 1000 {
			t.Errorf("up to %d IDs held, want a chain of 10 times the maximal step, 100, at most", most)
		}
	})
}

func TestATagHasOneLoadUnderWayAtMost(t *testing.T) {
	var under, most atomic.Int32
	inBubble(t, segment.Config{MaxStep: 1000}, func(t *testing.T, a *allocator, store *faulty) {
		store.OnLoad(func(_ context.Context, _ string, load loadFunc) (segment.Range, error) {
			most.Store(max(most.Load(), under.Add(1)))
			defer under.Add(-1)
			time.Sleep(30 * time.Millisecond)
			return load()
		})
		for range 2000 {
			_ = a.Park("a", 7, func([]segment.Range, error) {})
			_, _ = a.Next("a", 1, nil)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		if most.Load() != 1 {
			t.Errorf("%d loads of one tag at a time", most.Load())
		}
	})
}

// database bounds statements as a store does: 32 at once, later ones queue. The loads of locked tags hang.
func database(locked func(tag string) bool) segmenttest.LoadHook {
	statements := make(chan struct{}, 32)
	return func(ctx context.Context, tag string, load loadFunc) (segment.Range, error) {
		select {
		case statements <- struct{}{}:
		case <-ctx.Done():
			return segment.Range{}, ctx.Err()
		}
		defer func() { <-statements }()
		if locked(tag) {
			<-ctx.Done()
			return segment.Range{}, ctx.Err()
		}
		return load()
	}
}

func TestTagsWhoseLoadsHangLeaveTheDatabaseToTheOthers(t *testing.T) {
	inBubble(t, segment.Config{AutoStep: 100}, func(t *testing.T, a *allocator, store *faulty) {
		store.OnLoad(database(func(tag string) bool { return tag != "b" }))
		ctx, stop := context.WithCancel(t.Context())
		refused := make(chan time.Duration, 100_000)
		for i := range 60 {
			go func() {
				for ctx.Err() == nil {
					asked := time.Now()
					_, err := segmenttest.Take(ctx, a, fmt.Sprint("locked", i), 1)
					if errors.Is(err, segment.ErrNotLoaded) {
						refused <- time.Since(asked)
					}
				}
			}()
		}
		time.Sleep(5 * time.Second)
		// Tag b needs a load every 10 ms.
		take(t, a, "b", 100)
		if waits, longest := steady(t, a, "b", 100*time.Microsecond, 10*time.Second); waits > 0 {
			t.Errorf("%d requests of a sound tag waited, up to %v", waits, longest)
		}
		stop()
		synctest.Wait()
		close(refused)
		for d := range refused {
			if d > 1500*time.Millisecond {
				t.Fatalf("a request of a locked tag was refused after %v", d)
			}
		}
	})
}

func TestTagsThatBeginToHangAtOnceDelayTheOthersForMomentsOnly(t *testing.T) {
	inBubble(t, segment.Config{AutoStep: 100, MaxWaiting: 1_000_000}, func(t *testing.T, a *allocator, store *faulty) {
		store.OnLoad(database(func(tag string) bool { return tag != "b" }))
		take(t, a, "b", 100)
		steady(t, a, "b", 100*time.Microsecond, time.Second)
		ctx, stop := context.WithCancel(t.Context())
		for i := range 60 {
			go func() {
				for ctx.Err() == nil {
					_, _ = segmenttest.Take(ctx, a, fmt.Sprint("locked", i), 1)
				}
			}()
		}
		synctest.Wait()
		if _, longest := steady(t, a, "b", 100*time.Microsecond, 10*time.Second); longest > time.Second {
			t.Errorf("a request of a sound tag waited %v", longest)
		}
		stop()
	})
}

// At a start many tags load at once, from a store that may be slow for all of them.
func TestAStoreThatIsSlowForAllTagsServesOneForEachPlace(t *testing.T) {
	for _, took := range []time.Duration{200 * time.Millisecond, 300 * time.Millisecond, 450 * time.Millisecond} {
		inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
			const tags, places = 200, 20
			for i := range tags {
				create(t, store, segment.Tag{Name: fmt.Sprint("tag", i), Step: 100, MaxID: 1})
			}
			store.OnLoad(slow(took))
			want := places * (int(deadline/took) - 1)
			if served := tags - askAll(a, tags, 1); served < want {
				t.Errorf("%d tags were served by loads of %v, want %d", served, took, want)
			}
		})
	}
}

// askAll requests n IDs of each of so many tags, all at once, and returns how many requests failed.
func askAll(a *segment.Allocator, tags int, n int64) (failed int) {
	errs := make(chan error, tags)
	for i := range tags {
		go func() {
			_, err := segmenttest.Take(context.Background(), a, fmt.Sprint("tag", i), n)
			errs <- err
		}()
	}
	for range tags {
		if <-errs != nil {
			failed++
		}
	}
	return failed
}

func TestALoadWhosePlaceIsNotWantedHasItsWholeTime(t *testing.T) {
	failed := 0
	cfg := segment.Config{AutoStep: 100, OnLoad: func(tag string, _ time.Duration, err error) {
		if err != nil && tag == "b" {
			failed++
		}
	}}
	inBubble(t, cfg, func(t *testing.T, a *allocator, store *faulty) {
		store.OnLoad(slow(10 * time.Millisecond))
		askAll(a, 100, 1) // many wait for places, and get them
		synctest.Wait()
		store.OnLoad(slow(900 * time.Millisecond))
		if take(t, a, "b", 1); failed > 0 {
			t.Errorf("%d loads of a tag that was alone ended before their time", failed)
		}
	})
}

func TestATagThatFailedOnceIsNotDelayedByThoseThatAlwaysDo(t *testing.T) {
	inBubble(t, segment.Config{AutoStep: 100}, func(t *testing.T, a *allocator, store *faulty) {
		var blip atomic.Bool
		store.OnLoad(database(func(tag string) bool { return tag != "b" || blip.Load() }))
		ctx, stop := context.WithCancel(t.Context())
		for i := range 60 {
			go func() {
				for ctx.Err() == nil {
					_, _ = segmenttest.Take(ctx, a, fmt.Sprint("locked", i), 1)
				}
			}()
		}
		time.Sleep(30 * time.Second)
		blip.Store(true)
		_, err := segmenttest.Take(t.Context(), a, "b", 1)
		blip.Store(false)
		time.Sleep(time.Second) // the load that still hangs
		asked := time.Now()
		take(t, a, "b", 1)
		if d := time.Since(asked); !errors.Is(err, segment.ErrNotLoaded) || d > 10*time.Millisecond {
			t.Errorf("after %v, once the row was free, the tag waited %v", err, d)
		}
		// A tag that was stuck itself waits for its place, once.
		time.AfterFunc(20*time.Second, func() { blip.Store(false) })
		for blip.Store(true); blip.Load(); {
			_, _ = segmenttest.Take(t.Context(), a, "b", 1)
		}
		for err = segment.ErrNotLoaded; err != nil; {
			_, err = segmenttest.Take(t.Context(), a, "b", 1)
		}
		if waits, longest := steady(t, a, "b", 100*time.Microsecond, 5*time.Second); waits > 0 {
			t.Errorf("after it was stuck and is sound again, %d requests waited, up to %v", waits, longest)
		}
		stop()
	})
}

func TestARefusedTagIsNotLoadedByEveryRequest(t *testing.T) {
	var loads atomic.Int32
	cfg := segment.Config{OnLoad: func(string, time.Duration, error) { loads.Add(1) }}
	inBubble(t, cfg, func(t *testing.T, a *allocator, store *faulty) {
		take(t, a, "a", 1)
		store.OnLoad(failing(segment.ErrUnknownTag)) // a store that lost its memory
		for range 90 {
			take(t, a, "a", 1)
			synctest.Wait()
		}
		if n := loads.Load(); n > 2 {
			t.Errorf("%d loads while the last range of a tag that is lost was used", n)
		}
		take(t, a, "a", 9)
		asked := time.Now()
		_, err := segmenttest.Take(t.Context(), a, "a", 1)
		if !errors.Is(err, segment.ErrUnknownTag) || time.Since(asked) > 0 {
			t.Errorf("then: %v after %v", err, time.Since(asked))
		}
	})
}
