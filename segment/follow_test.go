package segment_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// followed runs f in fake time with an allocator that follows a memory store
// with the tags a and b of step 100, after its first poll.
func followed(t *testing.T, cfg segment.Config, f func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory)) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(segmenttest.Memory)
		store := &segmenttest.Faulty{Store: memory}
		for _, tag := range []string{"a", "b"} {
			if _, err := store.Create(t.Context(), segment.Tag{Name: tag, Step: 100, MaxID: 1}, false); err != nil {
				t.Fatal(err)
			}
		}
		cfg.Store, cfg.Deadline, cfg.MaxStep = store, deadline, max(1, cfg.MaxStep)
		a := segment.New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		var follower sync.WaitGroup
		follower.Go(func() { a.Follow(ctx) })
		synctest.Wait()
		f(t, a, store, memory)
		cancel()
		follower.Wait()
		a.Close()
	})
}

func wantRefused(t *testing.T, a *segment.Allocator, tag string, want error) {
	t.Helper()
	asked := time.Now()
	if r, err := a.Take(t.Context(), tag, 1); !errors.Is(err, want) || time.Since(asked) > 0 {
		t.Errorf("%s: %v, %v after %v, want %v at once", tag, r, err, time.Since(asked), want)
	}
}

func inMemory(a *segment.Allocator, tag string) bool {
	_, ok := a.StatsOf(tag)
	return ok
}

func TestRowsThatComeGoAndChangeAreSeenByThePoll(t *testing.T) {
	followed(t, segment.Config{}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		take(t, a, "a", 1)
		take(t, a, "b", 1)
		wantRefused(t, a, "new", segment.ErrUnknownTag)
		memory.Remove("a")
		if err := memory.Delete(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		if _, err := memory.Create(t.Context(), segment.Tag{Name: "new", Step: 7, MaxID: 50}, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		take(t, a, "a", 1) // not yet
		time.Sleep(2 * time.Second)
		wantRefused(t, a, "a", segment.ErrUnknownTag)
		wantRefused(t, a, "b", segment.ErrDisabled)
		if inMemory(a, "a") || inMemory(a, "b") {
			t.Error("a tag that is gone is still in memory")
		}
		if got := take(t, a, "new", 1)[0].Start; got != 50 {
			t.Errorf("new: %d, want 50", got)
		}
		if _, err := memory.Update(t.Context(), "new", segment.Change{Step: 3}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		take(t, a, "new", 12)
		synctest.Wait()
		if s, _ := a.StatsOf("new"); s.Configured != 3 || s.Ranges[len(s.Ranges)-1].Last-s.Ranges[len(s.Ranges)-1].First != 2 {
			t.Errorf("%+v, want the next load to be of the new step, 3", s)
		}
	})
}

func TestAnUnknownTagCostsOneLookUpForAWhile(t *testing.T) {
	var lookups atomic.Int64
	cfg := segment.Config{MaxWaiting: 20_000, OnLoad: func(string, time.Duration, error) { lookups.Add(1) }}
	followed(t, cfg, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		store.OnLoad(slow(10 * time.Millisecond))
		var refused atomic.Int64
		for range 10_000 {
			if err := a.Park("nobody", 1, func(_ []segment.Range, err error) {
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
			wantRefused(t, a, "nobody", segment.ErrUnknownTag)
		}
		if n := lookups.Load(); n != 1 || refused.Load() != 10_000 {
			t.Errorf("%d look-ups, %d refused, want one for all of 3 s", n, refused.Load())
		}
		if _, err := memory.Create(t.Context(), segment.Tag{Name: "nobody", Step: 10, MaxID: 1}, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		take(t, a, "nobody", 1) // seen without poll or message, once the memory of it ends
	})
}

func TestATagWhoseRowCannotBeServedCostsOneLoadForAWhile(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty) {
		loads := 0
		store.OnLoad(func(context.Context, string, func() (segment.Range, error)) (segment.Range, error) {
			loads++
			return segment.Range{}, segment.ErrBadRow
		})
		for range 1000 {
			if _, err := a.Take(t.Context(), "a", 1); !errors.Is(err, segment.ErrBadRow) {
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

func TestAPollEndsTheMemoryThatATagIsUnknown(t *testing.T) {
	followed(t, segment.Config{Poll: time.Second}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		time.Sleep(500 * time.Millisecond)
		wantRefused(t, a, "made", segment.ErrUnknownTag)
		if _, err := memory.Create(t.Context(), segment.Tag{Name: "made", Step: 10, MaxID: 1}, false); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, a, "made", segment.ErrUnknownTag)
		time.Sleep(501 * time.Millisecond)
		take(t, a, "made", 1)
	})
}

func TestAStampedeOfUnknownTagsReachesTheStoreAtABoundedRateAndHurtsNoKnownOne(t *testing.T) {
	var strange, inStore, most atomic.Int64
	cfg := segment.Config{OnLoad: func(tag string, _ time.Duration, err error) {
		if tag != "a" && tag != "b" {
			strange.Add(1)
		}
	}}
	followed(t, cfg, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		store.OnLoad(func(ctx context.Context, tag string, load func() (segment.Range, error)) (segment.Range, error) {
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
			if err := a.Park(fmt.Sprint("nobody", i), 1, done); err != nil {
				done(nil, err)
			}
		}
		time.Sleep(2 * time.Second)
		if n := answered.Load(); n != second*asked || wrong.Load() > 0 {
			t.Errorf("%d of %d answered, %d of them not with 404", n, second*asked, wrong.Load())
		}
		if n := strange.Load(); n < 500 || n > 5000 || most.Load() > 4 {
			t.Errorf("%d look-ups in 2 s and the burst, %d at once; want at most 1000 a second, 4 at once", n, most.Load())
		}
		if longest > 0 {
			t.Errorf("a known tag waited %v", longest)
		}
		if n := a.Stats().Tags; n > 2 {
			t.Errorf("%d tags in memory, want the 2 that there are", n)
		}
		if _, err := memory.Create(t.Context(), segment.Tag{Name: "made", Step: 10, MaxID: 1}, false); err != nil {
			t.Fatal(err)
		}
	})
}

func TestATagMadeInTheMidstOfAStampedeIsServedAtOnceIfToldOf(t *testing.T) {
	followed(t, segment.Config{}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		for i := range 20_000 {
			_ = a.Park(fmt.Sprint("nobody", i), 1, func([]segment.Range, error) {})
		}
		wantRefused(t, a, "made", segment.ErrUnknownTag)
		if _, err := memory.Create(t.Context(), segment.Tag{Name: "made", Step: 10, MaxID: 1}, false); err != nil {
			t.Fatal(err)
		}
		a.Changed("made")
		asked := time.Now()
		if take(t, a, "made", 1); time.Since(asked) > 0 {
			t.Errorf("it took %v", time.Since(asked))
		}
	})
}

func TestALookUpOlderThanTheNewsOfATagRefusesNobody(t *testing.T) {
	followed(t, segment.Config{}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		store.OnLoad(func(_ context.Context, tag string, load func() (segment.Range, error)) (segment.Range, error) {
			r, err := load()
			time.Sleep(100 * time.Millisecond) // the answer is on its way
			return r, err
		})
		got := make(chan error, 1)
		if err := a.Park("made", 1, func(_ []segment.Range, err error) { got <- err }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		if _, err := memory.Create(t.Context(), segment.Tag{Name: "made", Step: 10, MaxID: 1}, false); err != nil {
			t.Fatal(err)
		}
		a.Changed("made")
		if err := <-got; err != nil {
			t.Errorf("who waited while the tag was made: %v", err)
		}
	})
}

func TestNothingBelowARaisedMarkIsHandedOutOnceItWasSeen(t *testing.T) {
	followed(t, segment.Config{}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		for name, tell := range map[string]func(segment.Tag){
			"told":           func(tag segment.Tag) { a.See(tag) },
			"a message":      func(segment.Tag) { a.Changed("a"); synctest.Wait() },
			"a message lost": func(segment.Tag) { time.Sleep(time.Minute + time.Second) },
			"the next load": func(segment.Tag) {
				s, _ := a.StatsOf("a")
				take(t, a, "a", s.Left+1)
			},
			"connected again": func(segment.Tag) { a.Refresh(); synctest.Wait() },
		} {
			take(t, a, "a", 15) // two ranges in memory
			synctest.Wait()
			// And a load under way, which has its range already.
			var landed sync.WaitGroup
			if name != "the next load" {
				store.OnLoad(func(_ context.Context, tag string, load func() (segment.Range, error)) (segment.Range, error) {
					r, err := load()
					time.Sleep(20 * time.Millisecond)
					return r, err
				})
				landed.Add(1)
				if err := a.Park("a", 1000, func([]segment.Range, error) { landed.Done() }); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
			raised, err := memory.Update(t.Context(), "a", segment.Change{RaiseBy: 50_000})
			if err != nil {
				t.Fatal(err)
			}
			tell(raised)
			store.OnLoad(nil)
			if got := take(t, a, "a", 1)[0].Start; got < raised.MaxID {
				t.Errorf("%s: got %d after max_id was raised to %d", name, got, raised.MaxID)
			}
			landed.Wait()
			for _, r := range take(t, a, "a", 500) {
				if r.Start < raised.MaxID {
					t.Errorf("%s: got %v after max_id was raised to %d", name, r, raised.MaxID)
				}
			}
		}
	})
}

func TestALoadTellsOfARaiseThatNobodyElseTold(t *testing.T) {
	followed(t, segment.Config{}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		take(t, a, "a", 15)
		synctest.Wait() // up to 200 in memory
		raised, err := memory.Update(t.Context(), "a", segment.Change{RaiseBy: 50_000})
		if err != nil {
			t.Fatal(err)
		}
		take(t, a, "a", 100) // into the second range: a load is due
		synctest.Wait()
		if got := take(t, a, "a", 1)[0].Start; got < raised.MaxID {
			t.Errorf("got %d, from a range loaded before max_id was raised to %d, though a load has come since", got, raised.MaxID)
		}
	})
}

func TestWhatIsThrownAwayIsNoTraffic(t *testing.T) {
	followed(t, segment.Config{MaxStep: 1_000_000}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		for range 20 {
			take(t, a, "a", 1)
			raised, err := memory.Update(t.Context(), "a", segment.Change{RaiseBy: 5000})
			if err != nil {
				t.Fatal(err)
			}
			a.See(raised)
			synctest.Wait()
			time.Sleep(time.Second)
		}
		if s, _ := a.StatsOf("a"); s.Step != 100 || s.Peak > 2 {
			t.Errorf("%+v, want the step, and the speed of one ID a second", s)
		}
	})
}

func TestADeletedTagStopsAtOnceWithWhoeverWaitsAndMadeAgainGoesOnAbove(t *testing.T) {
	followed(t, segment.Config{AutoStep: 10}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		last := take(t, a, "a", 50)[0].End
		store.OnLoad(slow(time.Second / 2))
		waiting := make(chan error, 1)
		if err := a.Park("a", 1000, func(_ []segment.Range, err error) { waiting <- err }); err != nil {
			t.Fatal(err)
		}
		if err := memory.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		a.Changed("a")
		synctest.Wait()
		select {
		case err := <-waiting:
			if !errors.Is(err, segment.ErrDisabled) {
				t.Errorf("who waited: %v", err)
			}
		default:
			t.Error("who waited has no answer")
		}
		store.OnLoad(nil)
		wantRefused(t, a, "a", segment.ErrDisabled)
		made, err := memory.Create(t.Context(), segment.Tag{Name: "a", Step: 10, MaxID: 1}, true)
		if err != nil {
			t.Fatal(err)
		}
		a.See(made)
		if got := take(t, a, "a", 1)[0].Start; got < last || got < made.MaxID {
			t.Errorf("made again: %d, want it at %d or above", got, made.MaxID)
		}
	})
}

func TestATagThatWasStoppedKeepsItsFloor(t *testing.T) {
	followed(t, segment.Config{AutoStep: 10}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		last := take(t, a, "a", 50)[0].End
		memory.Remove("a")
		time.Sleep(time.Minute)
		synctest.Wait()
		if inMemory(a, "a") {
			t.Fatal("it is still in memory")
		}
		wantRefused(t, a, "a", segment.ErrUnknownTag) // its mark is lost: not made on first use
		if _, err := memory.Create(t.Context(), segment.Tag{Name: "a", Step: 10, MaxID: 1}, false); err != nil {
			t.Fatal(err)
		}
		a.Changed("a")
		if got := take(t, a, "a", 1)[0].Start; got < last {
			t.Errorf("made again below what this allocator gave: %d after %d", got, last)
		}
	})
}

func TestWhatIsLoadedIsServedThoughTheStoreLostItsMemory(t *testing.T) {
	followed(t, segment.Config{}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		take(t, a, "a", 1)
		store.OnPoll(func(_ context.Context, see func(segment.Listing), _ func(func(segment.Listing)) error) error {
			see(segment.Listing{Removed: func(string) bool { return false }})
			return nil
		})
		store.OnLoad(func(context.Context, string, func() (segment.Range, error)) (segment.Range, error) {
			return segment.Range{}, segment.ErrUnknownTag
		})
		time.Sleep(2 * time.Minute)
		take(t, a, "a", 98)
		wantRefused(t, a, "b", segment.ErrUnknownTag)
	})
}

// late makes listings old when they arrive.
func late(by time.Duration) segmenttest.PollHook {
	return func(_ context.Context, see func(segment.Listing), poll func(func(segment.Listing)) error) error {
		return poll(func(l segment.Listing) {
			time.Sleep(by)
			see(l)
		})
	}
}

func TestAListingOlderThanATagDoesNotStopIt(t *testing.T) {
	followed(t, segment.Config{Poll: time.Second}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		store.OnPoll(late(500 * time.Millisecond))
		time.Sleep(1200 * time.Millisecond) // a listing is under way
		if _, err := memory.Create(t.Context(), segment.Tag{Name: "made", Step: 10, MaxID: 1}, false); err != nil {
			t.Fatal(err)
		}
		a.Changed("made")
		take(t, a, "made", 1)
		for range 100 {
			time.Sleep(5 * time.Millisecond)
			if !inMemory(a, "made") {
				t.Fatal("it was stopped by a listing that is older than it")
			}
		}
	})
}

func TestAPollThatHangsBlocksNoRequest(t *testing.T) {
	followed(t, segment.Config{}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		store.OnPoll(late(time.Hour))
		a.Refresh()
		synctest.Wait()
		begin := time.Now()
		take(t, a, "a", 500)
		raised, err := memory.Update(t.Context(), "a", segment.Change{RaiseBy: 1000})
		if err != nil {
			t.Fatal(err)
		}
		a.Changed("a")
		synctest.Wait()
		if got := take(t, a, "a", 1)[0].Start; got < raised.MaxID || time.Since(begin) > 0 {
			t.Errorf("%d after %v", got, time.Since(begin))
		}
	})
}

func TestOnlyTagsThatMatchAreMadeOnFirstUse(t *testing.T) {
	var made []string
	cfg := segment.Config{
		AutoStep: 10, AutoMake: func(tag string) bool { return tag == "yes" }, OnMake: func(tag string) { made = append(made, tag) },
	}
	followed(t, cfg, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		take(t, a, "yes", 1)
		wantRefused(t, a, "no", segment.ErrUnknownTag)
		if len(made) != 1 || made[0] != "yes" {
			t.Errorf("told of %q, want of yes", made)
		}
	})
}

func TestAListingOlderThanWhatWasToldOfATagDoesNotStopIt(t *testing.T) {
	followed(t, segment.Config{Poll: time.Second}, func(t *testing.T, a *segment.Allocator, store *segmenttest.Faulty, memory *segmenttest.Memory) {
		take(t, a, "a", 1)
		if err := memory.Delete(t.Context(), "a"); err != nil { // and the message is lost
			t.Fatal(err)
		}
		store.OnPoll(late(500 * time.Millisecond))
		time.Sleep(1200 * time.Millisecond) // a listing that has it deleted is under way
		made, err := memory.Create(t.Context(), segment.Tag{Name: "a", Step: 10, MaxID: 1}, true)
		if err != nil {
			t.Fatal(err)
		}
		store.OnLoad(func(ctx context.Context, _ string, _ func() (segment.Range, error)) (segment.Range, error) {
			<-ctx.Done() // who waits, waits
			return segment.Range{}, ctx.Err()
		})
		a.See(made)
		_, err = a.Take(t.Context(), "a", 1)
		if errors.Is(err, segment.ErrUnknownTag) {
			t.Errorf("a request for a tag that was told to be there: %v", err)
		}
	})
}
