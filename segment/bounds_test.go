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

func left(a *segment.Allocator) int64 {
	s, _ := a.StatsOf("d")
	return s.Left
}

func TestABoundOnHolesHoldsAtMidnight(t *testing.T) {
	rules := segment.Rules{Period: segment.Daily, MaxHole: 100}
	most := int64(0)
	for used := int64(1); used <= 100; used += 9 {
		withClocks(t, rules, []*wall{{}}, func(t *testing.T, w []*segment.Allocator, m *segmenttest.Memory) {
			time.Sleep(10*time.Minute - 3*time.Second)
			take(t, w[0], "d", used)
			for range 60 {
				synctest.Wait()
				most = max(most, left(w[0]))
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	if most > 100 {
		t.Errorf("a crash would waste %d IDs, want at most 100", most)
	}
}

// The request for many IDs waits behind a slow load, and has given up when its own load ends.
func TestABoundOnHolesHoldsAfterARequestGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(segmenttest.Memory)
		create(t, m, segment.Tag{Name: "d", Step: 100, MaxID: 1, Rules: segment.Rules{MaxHole: 100}})
		store := &slowly{m, deadline * 6 / 10}
		a := segment.New(segment.Config{Store: store, Deadline: deadline})
		defer a.Close()
		go func() { _, _ = segmenttest.Take(t.Context(), a, "d", 1) }()
		time.Sleep(10 * time.Millisecond)
		_, err := segmenttest.Take(t.Context(), a, "d", 10_000)
		time.Sleep(10 * deadline)
		t.Logf("the request for 10000 IDs: %v", err)
		if got := left(a); got > 100 {
			t.Errorf("a crash would waste %d IDs, want at most 100", got)
		}
	})
}

// slowly is a store whose loads take a while.
type slowly struct {
	*segmenttest.Memory
	takes time.Duration
}

func (s *slowly) Load(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	time.Sleep(s.takes)
	return s.Memory.Load(ctx, tag, n, floor)
}

func TestALowerBoundOnHolesHolds(t *testing.T) {
	withClocks(t, segment.Rules{}, []*wall{{}}, func(t *testing.T, w []*segment.Allocator, m *segmenttest.Memory) {
		take(t, w[0], "d", 5000)
		take(t, w[0], "d", 1)
		synctest.Wait()
		got, err := m.Update(t.Context(), "d", segment.Change{Rules: func(r segment.Rules) segment.Rules {
			r.MaxHole = 10
			return r
		}})
		if err != nil {
			t.Fatal(err)
		}
		w[0].See(got)
		synctest.Wait()
		if held := left(w[0]); held > 10 {
			t.Errorf("%d IDs are in memory, and a crash may waste 10", held)
		}
	})
}

// Otherwise the worker takes itself for one that cannot load, and leaves the queue group of all tags.
func TestAClockThatIsNotSureIsNoTroubleOfTheStore(t *testing.T) {
	w := &wall{unsure: true}
	daily := segment.Rules{Period: segment.Daily}
	withClocks(t, daily, []*wall{w}, func(t *testing.T, a []*segment.Allocator, m *segmenttest.Memory) {
		create(t, m, segment.Tag{Name: "other", Step: 10, MaxID: 1})
		if _, err := segmenttest.Take(t.Context(), a[0], "d", 1); !errors.Is(err, segment.ErrClock) {
			t.Fatal(err)
		}
		if why := a[0].Trouble(); why != nil {
			t.Errorf("the allocator says that it cannot load: %v", why)
		}
		take(t, a[0], "other", 1)
	})
}

// Where loads take a while, and many requests wait, a load must not reserve more for the next ones.
func TestABoundOnHolesHoldsWhereLoadsAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(segmenttest.Memory)
		create(t, m, segment.Tag{Name: "d", Step: 100, MaxID: 1, Rules: segment.Rules{MaxHole: 100}})
		a := segment.New(segment.Config{Store: &slowly{m, deadline / 10}, Deadline: deadline})
		defer a.Close()
		for i := range 500 {
			go func() { _, _ = segmenttest.Take(t.Context(), a, "d", int64(1+i%40)) }()
			time.Sleep(10 * time.Millisecond)
			if got := left(a); got > 100 {
				t.Fatalf("a crash would waste %d IDs, want at most 100", got)
			}
		}
		time.Sleep(2 * deadline)
	})
}

func TestNoCallerWaitsForASlowLoadAtMidnight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24*time.Hour - 10*time.Second)
		m := new(segmenttest.Memory)
		create(t, m, segment.Tag{Name: "d", Step: 100, MaxID: 1, Rules: segment.Rules{Period: segment.Daily}})
		a := segment.New(segment.Config{Store: &slowly{m, deadline / 3}, Deadline: deadline})
		go a.Follow(t.Context())
		defer a.Close()
		time.Sleep(7 * time.Second)
		first(t, a)
		time.Sleep(3*time.Second - deadline/3 + 10*time.Millisecond)
		got, err := a.Next("d", 1, nil)
		if err != nil || day(got[0].Start) != 2 {
			t.Errorf("at midnight an ID is %v, %v; want one of the day, from memory", got, err)
		}
	})
}

func TestAWorkerHoldsAHundredthOfASmallTag(t *testing.T) {
	rules := segment.Rules{Max: 5000}
	withClocks(t, rules, []*wall{{}, {}, {}}, func(t *testing.T, w []*segment.Allocator, m *segmenttest.Memory) {
		for _, a := range w {
			take(t, a, "d", 1)
			synctest.Wait()
			if held := left(a); held > 50 {
				t.Errorf("a worker holds %d of 5000 IDs, want at most 50", held)
			}
		}
		if now, err := m.Look(t.Context(), "d"); err != nil || now.MaxID > 151 {
			t.Errorf("of 5000 IDs 3 were given, and %d are loaded: %v", now.MaxID-1, err)
		}
	})
}
