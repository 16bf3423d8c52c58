package segment_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

var errHeld = errors.New("held")

func TestHeldLoadsFailWithTheReasonAndMemoryGoesOn(t *testing.T) {
	inBubble(t, segment.Config{AutoStep: 50}, func(t *testing.T, a *allocator, store *faulty) {
		take(t, a, "a", 1)
		a.Hold(errHeld)
		store.OnLoad(func(context.Context, string, loadFunc) (segment.Range, error) {
			t.Error("the store was asked while loads are held")
			return segment.Range{}, errHeld
		})
		take(t, a, "a", 99)
		for _, tag := range []string{"a", "b", "new"} {
			_, err := segmenttest.Take(t.Context(), a, tag, 1)
			if !errors.Is(err, segment.ErrNotLoaded) || !errors.Is(err, errHeld) {
				t.Errorf("a request for %s that needs a load: %v, want ErrNotLoaded with the reason", tag, err)
			}
		}
		if err := a.Trouble(); !errors.Is(err, errHeld) {
			t.Errorf("Trouble is %v, want the reason", err)
		}
		store.OnLoad(nil)
		a.Release()
		take(t, a, "a", 1)
		take(t, a, "b", 1)
	})
}

func TestTheReasonIsNoTroubleOnceLoadsAreReleased(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		store.OnLoad(func(context.Context, string, loadFunc) (segment.Range, error) {
			time.Sleep(time.Second / 2) // within the time of a load
			return segment.Range{}, errHeld
		})
		a.Hold(errHeld)
		_, _ = segmenttest.Take(t.Context(), a, "a", 1) // fails more than twice
		a.Release()
		// Two loads are under way while loads are held again.
		go func() { _, _ = segmenttest.Take(t.Context(), a, "b", 1) }()
		go func() { _, _ = segmenttest.Take(t.Context(), a, "huge", 1) }()
		synctest.Wait()
		a.Hold(errHeld)
		time.Sleep(time.Second / 4)
		a.Release()
		if err := a.Trouble(); err != nil {
			t.Errorf("when loads are released, a load is in trouble: %v", err)
		}
		store.OnLoad(slow(time.Hour))
		time.Sleep(time.Second / 3)
		if err := a.Trouble(); err != nil {
			t.Errorf("after loads that began before: %v", err)
		}
	})
}

func TestWhatWasLoadedBeforeADiscardIsNotIssued(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		take(t, a, "a", 50) // [1,101) in memory
		synctest.Wait()
		store.OnLoad(slow(time.Second / 2)) // it ends before its timeout
		late := make(chan []segment.Range)
		go func() { late <- take(t, a, "b", 1) }() // loads [1,101) of b
		synctest.Wait()
		a.Discard()
		if _, err := a.Next("a", 1, nil); !errors.Is(err, segment.ErrWait) {
			t.Errorf("an ID from memory after a discard: %v", err)
		}
		store.OnLoad(nil)
		if got := (<-late)[0].Start; got < 101 {
			t.Errorf("ID %d of a load that was under way at the discard", got)
		}
		if got := take(t, a, "a", 1)[0].Start; got < 201 {
			t.Errorf("ID %d, want one of a load after the discard", got)
		}
	})
}

func TestFloorsAreThoseOfAllTagsEverLoaded(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		a.Remember(map[string]segment.Floor{"b": {End: 1000}})
		take(t, a, "a", 1)
		take(t, a, "huge", 1)
		a.See(segment.Tag{Name: "huge", Disabled: true})
		synctest.Wait()
		got := a.Floors()
		if f := got["a"]; f.End != 101 || f.Step != 100 || !f.Live {
			t.Errorf("floor of a: %+v", f)
		}
		if f := got["huge"]; f.End == 0 || f.Live {
			t.Errorf("floor of a deleted tag: %+v", f)
		}
		if f := got["b"]; f.End != 1000 || f.Live {
			t.Errorf("floor of an earlier life: %+v", f)
		}
		if got := take(t, a, "b", 1)[0].Start; got != 1000 {
			t.Errorf("first ID %d, want that of the floor", got)
		}
	})
}

func TestARequestIsTurnedAwayOnlyIfMemoryCannotServeIt(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		take(t, a, "a", 1)
		synctest.Wait()
		store.OnLoad(slow(time.Hour))
		var waited error
		if err := a.Park("a", 5000, func(_ []segment.Range, err error) { waited = err }); err != nil {
			t.Fatal(err)
		}
		a.TurnAway(false)
		if waited != nil {
			t.Errorf("a request that waited for a load under way: %v", waited)
		}
		a.TurnAway(true)
		if !errors.Is(waited, segment.ErrElsewhere) {
			t.Errorf("a request that waited: %v", waited)
		}
		take(t, a, "a", 1)
		for tag, n := range map[string]int64{"a": 5000, "b": 1} {
			start := time.Now()
			_, err := segmenttest.Take(t.Context(), a, tag, n)
			if !errors.Is(err, segment.ErrElsewhere) || time.Since(start) > 0 {
				t.Errorf("%d of tag %s: %v after %v, want it turned away at once", n, tag, err, time.Since(start))
			}
		}
		if s := a.Stats(); s.Tags != 1 {
			t.Errorf("%d tags in memory; a tag that never had a range needs none", s.Tags)
		}
		store.OnLoad(nil)
		a.Admit()
		time.Sleep(2 * time.Second) // until the load under way has failed
		take(t, a, "a", 5000)
		take(t, a, "b", 1)
	})
}

// A tag that a store lost is not a deleted one, though nothing of it is in memory: the repair of the store serves it
// on.
func TestATagThatVanishedIsLive(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		// Strict, so that nothing of it is in memory.
		create(t, store, segment.Tag{Name: "s", Step: 100, MaxID: 1, Rules: segment.Rules{Strict: true}})
		take(t, a, "s", 1)
		floor := a.Floors()["s"]
		if floor.End != 2 || floor.Step != 100 || !floor.Live {
			t.Fatalf("its floor is %+v", floor)
		}
		for _, why := range []error{segment.ErrUnknownTag, segment.ErrUnknownTag, segmenttest.ErrInjected} {
			store.OnLoad(failing(why))
			if _, err := segmenttest.Take(t.Context(), a, "s", 1); !errors.Is(err, why) {
				t.Errorf("%v, want %v", err, why)
			}
			time.Sleep(time.Minute) // a refusal is remembered for a while
			if got := a.Floors()["s"]; got != floor {
				t.Errorf("after %v its floor is %+v, want %+v", why, got, floor)
			}
		}
		store.OnLoad(failing(segment.ErrDisabled))
		_, _ = segmenttest.Take(t.Context(), a, "s", 1)
		if got := a.Floors()["s"]; got.Live || got.End != 2 {
			t.Errorf("deleted, its floor is %+v", got)
		}
	})
}

// An eraStore is a store whose loads are of an era, or are another worker's.
type eraStore struct {
	segment.Store
	era    string
	passed bool
}

func (s *eraStore) Load(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	l, err := s.Store.Load(ctx, tag, n, floor)
	if l.Era = s.era; s.passed {
		l = segment.Loaded{Range: l.Range, Step: l.Step, Passed: true}
	}
	return l, err
}

// Rules that are known to be none are not the same as rules that are not known.
func TestAFloorCarriesItsEraAndTheRulesThatAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, daily := &eraStore{Store: new(segmenttest.Memory), era: "E"}, segment.Rules{Period: segment.Daily}
		create(t, store, segment.Tag{Name: "plain", Step: 10})
		create(t, store, segment.Tag{Name: "daily", Step: 10, Rules: daily})
		a := segment.New(segment.Config{Store: store, Deadline: time.Second})
		defer a.Close()
		a.Remember(map[string]segment.Floor{"old": {End: 7, Step: 5, Live: true, Era: "D"}})
		check := func(era string) {
			t.Helper()
			floors := a.Floors()
			for tag, want := range map[string]segment.Rules{"plain": {}, "daily": daily} {
				f := floors[tag]
				if f.Rules == nil || *f.Rules != want || f.Era != era || !f.Live {
					t.Errorf("the floor of %s is %+v, want rules %+v of era %s", tag, f, want, era)
				}
			}
			if f := floors["old"]; f.Rules != nil || f.Era != "D" {
				t.Errorf("the floor that is remembered is %+v", f)
			}
		}
		take := func(n int64) {
			t.Helper()
			for _, tag := range []string{"plain", "daily"} {
				if _, err := segmenttest.Take(t.Context(), a, tag, n); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		take(1)
		check("E")
		store.era = "F"
		check("E")
		a.Discard()
		take(1)
		check("F")
	})
}

func TestAFloorOfWhatAnotherWorkerLoadedSaysNothingOfRulesAndEra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &eraStore{Store: new(segmenttest.Memory), era: "E", passed: true}
		create(t, store, segment.Tag{Name: "daily", Step: 10, Rules: segment.Rules{Period: segment.Daily}})
		a := segment.New(segment.Config{Store: store, Deadline: time.Second})
		defer a.Close()
		for _, passed := range []bool{true, false, true} {
			store.passed = passed
			a.Discard()
			if _, err := segmenttest.Take(t.Context(), a, "daily", 1); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			f := a.Floors()["daily"]
			if passed && f.Rules == nil && f.Era != "" || f.Rules != nil && (f.Rules.Period == "" || f.Era != "E") {
				t.Errorf("the floor is %+v", f)
			}
		}
		known := a.Floors()["daily"]
		if known.Rules == nil {
			t.Errorf("the floor is %+v, want what it had loaded itself", known)
		}
		next := segment.New(segment.Config{Store: store, Deadline: time.Second}) // of another life
		defer next.Close()
		next.Remember(map[string]segment.Floor{"daily": known})
		if _, err := segmenttest.Take(t.Context(), next, "daily", 1); err != nil {
			t.Fatal(err)
		}
		if f := next.Floors()["daily"]; f.End <= known.End || f.Rules != known.Rules || f.Era != known.Era {
			t.Errorf("the floor is %+v, and before it was %+v", f, known)
		}
	})
}
