package segment_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

type (
	allocator = segment.Allocator
	faulty    = segmenttest.Faulty
	memory    = segmenttest.Memory
	loadFunc  = func() (segment.Range, error)
)

// followed runs f in fake time with an allocator that follows a memory store with the tags a and b of step 100, after
// its first poll.
func followed(t *testing.T, cfg segment.Config,
	f func(t *testing.T, a *allocator, store *faulty, memory *memory)) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(memory)
		store := &segmenttest.Faulty{Store: memory}
		for _, tag := range []string{"a", "b"} {
			create(t, store, segment.Tag{Name: tag, Step: 100, MaxID: 1})
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
	if r, err := segmenttest.Take(t.Context(), a, tag, 1); !errors.Is(err, want) || time.Since(asked) > 0 {
		t.Errorf("%s: %v, %v after %v, want %v at once", tag, r, err, time.Since(asked), want)
	}
}

func inMemory(a *segment.Allocator, tag string) bool {
	_, ok := a.StatsOf(tag)
	return ok
}

func TestAPollSeesTagsThatWereCreatedRemovedAndChanged(t *testing.T) {
	followed(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
		take(t, a, "a", 1)
		take(t, a, "b", 1)
		wantRefused(t, a, "new", segment.ErrUnknownTag)
		memory.Remove("a")
		if err := memory.Delete(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		create(t, memory, segment.Tag{Name: "new", Step: 7, MaxID: 50})
		time.Sleep(59 * time.Second)
		take(t, a, "a", 1) // not yet
		time.Sleep(2 * time.Second)
		wantRefused(t, a, "a", segment.ErrUnknownTag)
		wantRefused(t, a, "b", segment.ErrDisabled)
		if inMemory(a, "a") || inMemory(a, "b") {
			t.Error("a removed or deleted tag is still in memory")
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
		s, _ := a.StatsOf("new")
		if last := s.Ranges[len(s.Ranges)-1]; s.Configured != 3 || last.Last-last.First != 2 {
			t.Errorf("%+v, want the next load to be of the new step, 3", s)
		}
	})
}

func TestARaiseThatWasSeenOutlastsAStoreThatLosesIt(t *testing.T) {
	for _, inMemory := range []bool{true, false} {
		raiseLost(t, inMemory)
	}
}

func raiseLost(t *testing.T, inMemory bool) {
	var loads atomic.Int64
	cfg := segment.Config{OnLoad: func(string, time.Duration, error) { loads.Add(1) }}
	followed(t, cfg, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
		if inMemory {
			take(t, a, "a", 1)
		}
		old := look(t, memory, "a")
		raised, err := memory.Update(t.Context(), "a", segment.Change{MaxID: 50_000})
		if err != nil {
			t.Fatal(err)
		}
		// No load finds the raised tag, or none.
		store.OnLoad(failing(segmenttest.ErrInjected))
		a.See(raised)
		memory.Remove("a")
		create(t, memory, old)
		store.OnLoad(nil)
		if got := take(t, a, "a", 1)[0].Start; got < raised.MaxID {
			t.Errorf("ID %d after a raise to %d that the store has lost", got, raised.MaxID)
		}
		if n := loads.Load(); n > 10 { // without a floor the store is read up to the raise, step by step
			t.Errorf("that took %d loads", n)
		}
	})
}

func look(t *testing.T, s segment.Store, tag string) segment.Tag {
	t.Helper()
	got, err := s.Look(t.Context(), tag)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestDiscardedIDsAreNoTraffic(t *testing.T) {
	followed(t, segment.Config{MaxStep: 1_000_000}, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
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
		if s, _ := a.StatsOf("a"); s.Step != 100 || s.Recommended > 1200 {
			t.Errorf("%+v, want the step, and the speed of one ID a second", s)
		}
	})
}

// late delays listings, so that they are old when they arrive.
func late(by time.Duration) segmenttest.PollHook {
	return func(_ context.Context, see func(segment.Listing), poll func(func(segment.Listing)) error) error {
		return poll(func(l segment.Listing) {
			time.Sleep(by)
			see(l)
		})
	}
}

func TestAListingOlderThanATagDoesNotStopIt(t *testing.T) {
	followed(t, segment.Config{Poll: time.Second}, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
		store.OnPoll(late(500 * time.Millisecond))
		time.Sleep(1200 * time.Millisecond) // a listing is under way
		create(t, memory, segment.Tag{Name: "made", Step: 10, MaxID: 1})
		a.Changed("made")
		take(t, a, "made", 1)
		for range 100 {
			time.Sleep(5 * time.Millisecond)
			if !inMemory(a, "made") {
				t.Fatal("it was stopped by an older listing")
			}
		}
	})
}

func TestAPollThatHangsBlocksNoRequest(t *testing.T) {
	followed(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
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

func TestOnlyTagsThatMatchAreCreatedOnFirstUse(t *testing.T) {
	var created []string
	cfg := segment.Config{
		AutoStep: 10, AutoCreate: func(tag string) bool { return tag == "yes" },
		OnCreate: func(tag string) { created = append(created, tag) },
	}
	followed(t, cfg, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
		take(t, a, "yes", 1)
		wantRefused(t, a, "no", segment.ErrUnknownTag)
		if len(created) != 1 || created[0] != "yes" {
			t.Errorf("OnCreate was called for %q, want yes", created)
		}
	})
}

func TestAListingOlderThanTheNewsOfATagDoesNotStopIt(t *testing.T) {
	followed(t, segment.Config{Poll: time.Second}, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
		take(t, a, "a", 1)
		if err := memory.Delete(t.Context(), "a"); err != nil { // and the news is lost
			t.Fatal(err)
		}
		store.OnPoll(late(500 * time.Millisecond))
		time.Sleep(1200 * time.Millisecond) // a listing in which it is deleted is under way
		revived, err := memory.Create(t.Context(), segment.Tag{Name: "a", Step: 10, MaxID: 1}, true)
		if err != nil {
			t.Fatal(err)
		}
		store.OnLoad(func(ctx context.Context, _ string, _ func() (segment.Range, error)) (segment.Range, error) {
			<-ctx.Done() // no load ends
			return segment.Range{}, ctx.Err()
		})
		a.See(revived)
		_, err = segmenttest.Take(t.Context(), a, "a", 1)
		if errors.Is(err, segment.ErrUnknownTag) {
			t.Errorf("a request for a tag that was just revived: %v", err)
		}
	})
}

func TestAListingOlderThanTheNewsOfATagBringsNoOldLimits(t *testing.T) {
	followed(t, segment.Config{Poll: time.Second}, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
		limit := func(rate int64) segment.Tag {
			t.Helper()
			tag, err := memory.Update(t.Context(), "a", segment.Change{
				Rules: func(r segment.Rules) segment.Rules { r.Rate = rate; return r },
			})
			if err != nil {
				t.Fatal(err)
			}
			return tag
		}
		limit(5)
		if r := a.RulesOf("a"); r != (segment.Rules{}) {
			t.Errorf("before the first load its rules are %+v", r)
		}
		if take(t, a, "a", 1); a.RulesOf("a").Rate != 5 {
			t.Error("the first load brings no limit")
		}
		limit(6)
		time.Sleep(2500 * time.Millisecond)
		if a.RulesOf("a").Rate != 6 {
			t.Error("a poll brings no limit")
		}
		store.OnPoll(late(500 * time.Millisecond))
		time.Sleep(700 * time.Millisecond) // a listing with the old limit is under way
		a.See(limit(7))
		time.Sleep(600 * time.Millisecond)
		if rate := a.RulesOf("a").Rate; rate != 7 {
			t.Errorf("an older listing brings the rate %d back", rate)
		}
	})
}
