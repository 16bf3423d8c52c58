package segment_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// sized returns an allocator over a tag of step 1000, and the lengths of the
// ranges loaded so far.
func sized(t *testing.T, cfg segment.Config) (*segment.Allocator, func() []int64) {
	store := &segmenttest.Faulty{Store: new(segmenttest.Memory)}
	create(t, store, segment.Tag{Name: "a", Step: 1000, MaxID: 1})
	var sizes []int64
	store.OnLoad(func(_ context.Context, _ string, load loadFunc) (segment.Range, error) {
		r, err := load()
		sizes = append(sizes, r.Len()) // one load of a tag at a time
		return r, err
	})
	cfg.Store, cfg.Deadline = store, deadline
	a := segment.New(cfg)
	t.Cleanup(a.Close)
	return a, func() []int64 { synctest.Wait(); return slices.Clone(sizes) }
}

// use takes n IDs a second, for d.
func use(t *testing.T, a *segment.Allocator, n int64, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		take(t, a, "a", n)
	}
}

func TestARangeLastsAQuarterToHalfAnHourAtAnyTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, sizes := sized(t, segment.Config{})
		use(t, a, 100, 12*time.Hour)
		got := sizes()
		if want := []int64{1000, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000,
			128_000}; !slices.Equal(got[:len(want)], want) {
			t.Errorf("at 100 IDs/s the ranges were %v, want %v", got, want)
		}
		// 128,000 last 21 min, and it stays with that: it does not swing.
		for _, n := range got[9:] {
			if n != 128_000 {
				t.Errorf("later ranges %v, want all of 128,000", got[9:])
				break
			}
		}
		before := len(got)
		use(t, a, 5, 100*time.Hour)
		if got = sizes()[before:]; got[len(got)-1] != 8000 ||
			!slices.IsSortedFunc(got, func(x, y int64) int { return int(y - x) }) {
			t.Errorf("at 5 IDs/s the ranges were %v, want them to shrink to 8000, which last 27 min", got)
		}
		before = len(sizes())
		use(t, a, 5_000, 3*time.Hour)
		if got = sizes()[before:]; got[len(got)-1] != segment.DefaultMaxStep {
			t.Errorf("at 5000 IDs/s the ranges were %v, want the maximum in the end", got)
		}
	})
}

func TestTheFirstRangesAreTheTagsOwnStepAndABatchMakesNoStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, sizes := sized(t, segment.Config{})
		take(t, a, "a", 50_000)
		synctest.Wait()
		if s, _ := a.StatsOf("a"); s.Configured != 1000 || s.Step > 2000 {
			t.Errorf("after a first request for 50,000: %+v, want a step of the tag's own 1000, doubled once at most",
				s)
		}
		if got := sizes(); got[0] != 50_000 {
			t.Errorf("ranges %v", got)
		}
		// A batch a day uses as many IDs as the tag's own step in a quarter of an hour.
		for range 30 {
			time.Sleep(24 * time.Hour)
			take(t, a, "a", 50_000)
		}
		if s, _ := a.StatsOf("a"); s.Step > 2000 {
			t.Errorf("after 30 days of a batch a day: %+v", s)
		}
	})
}

func TestATagLeftAloneHalvesItsStepOnceARange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, sizes := sized(t, segment.Config{StepTime: time.Minute})
		use(t, a, 500, 10*time.Minute)
		full := sizes()[len(sizes())-1]
		time.Sleep(24 * time.Hour)
		before := len(sizes())
		use(t, a, 500, 20*time.Minute)
		if got := sizes()[before:]; got[0] < full/2 || got[len(got)-1] != full {
			t.Errorf("ranges of %d, an idle night, then %v: want one of half the size, and full ones again", full, got)
		}
	})
}

func TestAChangedStepOfATagCountsFromTheNextLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(segmenttest.Memory)
		set := func(step int64) {
			_ = store.Delete(t.Context(), "a")
			if _, err := store.Create(t.Context(), segment.Tag{Name: "a", Step: step, MaxID: 1}, true); err != nil {
				t.Fatal(err)
			}
		}
		set(1000)
		a := segment.New(segment.Config{Store: store, Deadline: deadline})
		defer a.Close()
		use(t, a, 1, 10*time.Minute)
		set(50_000)
		use(t, a, 1, 20*time.Minute)
		s, _ := a.StatsOf("a")
		if last := s.Ranges[len(s.Ranges)-1]; s.Configured != 50_000 || last.Last-last.First+1 != 50_000 {
			t.Errorf("%+v, want the last range to be of the new step", s)
		}
		set(200)
		use(t, a, 50, 60*time.Minute)
		if s, _ = a.StatsOf("a"); s.Configured != 200 || s.Step < 50_000 {
			t.Errorf("a lowered step: %+v, want the step to follow the traffic, 50 IDs/s", s)
		}
	})
}

func TestALoadThatFailsDoesNotMoveTheStep(t *testing.T) {
	inBubble(t, segment.Config{MaxStep: 1_000_000}, func(t *testing.T, a *allocator, store *faulty) {
		use(t, a, 100, 2*time.Hour)
		before, _ := a.StatsOf("a")
		time.Sleep(24 * time.Hour)
		store.OnLoad(failing(segmenttest.ErrInjected))
		for s := before; s.Left >= 100; s, _ = a.StatsOf("a") { // until the next load would follow
			use(t, a, 100, time.Second)
		}
		_, _ = segmenttest.Take(t.Context(), a, "a", 1000)
		after, _ := a.StatsOf("a")
		if after.Errors < 5 || after.Step < before.Step/2 {
			t.Errorf("step %d, an idle night, %d loads that failed: step %d, want one half at most", before.Step,
				after.Errors, after.Step)
		}
	})
}
