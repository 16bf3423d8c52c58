package segment_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

const numbersADay = 100_000_000

// A wall is a worker's wall clock, apart from that of the bubble.
type wall struct {
	mu     sync.Mutex
	offset time.Duration
	unsure bool
	late   time.Duration // how late the store's next answer comes
}

func (w *wall) now() (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().UTC().Add(w.offset), !w.unsure
}

func (w *wall) set(offset time.Duration, unsure bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offset, w.unsure = offset, unsure
}

func (w *wall) answersLate() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := w.late
	w.late = 0
	return late
}

// onWorkers is a test of workers that share a store.
type onWorkers func(t *testing.T, w []*segment.Allocator, m *segmenttest.Memory)

// withClocks runs f in fake time with a worker for each clock, all on the daily tag d of a store. It begins ten minutes
// before the end of 2000-01-01: a worker looks at the day each second.
func withClocks(t *testing.T, rules segment.Rules, walls []*wall, f onWorkers) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24*time.Hour - 10*time.Minute)
		m := new(segmenttest.Memory)
		create(t, m, segment.Tag{Name: "d", Step: 100, MaxID: 1, Rules: rules})
		var workers []*segment.Allocator
		ctx, cancel := context.WithCancel(t.Context())
		var following sync.WaitGroup
		for _, w := range walls {
			store := &clocked{Memory: m, wall: w}
			a := segment.New(segment.Config{Store: store, Deadline: deadline, Clock: w.now})
			following.Go(func() { a.Follow(ctx) })
			workers = append(workers, a)
		}
		f(t, workers, m)
		cancel()
		following.Wait()
		for _, a := range workers {
			a.Close()
		}
	})
}

// clocked is a shared store as a worker with a clock of its own loads from it.
type clocked struct {
	*segmenttest.Memory
	wall *wall
}

func (c *clocked) Load(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	defer time.Sleep(c.wall.answersLate())
	return c.Memory.LoadBy(ctx, c.wall.now, tag, n, floor)
}

func (c *clocked) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (segment.Loaded, error) {
	return c.Memory.LoadStrictBy(ctx, c.wall.now, tag, join, floor)
}

func day(id int64) int64 { return id / numbersADay % 100 }

func first(t *testing.T, a *segment.Allocator) int64 {
	t.Helper()
	return take(t, a, "d", 1)[0].Start
}

func TestAtMidnightNumbersBeginAgainAndNoCallerWaitsForALoad(t *testing.T) {
	daily := segment.Rules{Period: segment.Daily}
	withClocks(t, daily, []*wall{{}}, func(t *testing.T, w []*segment.Allocator, m *segmenttest.Memory) {
		if id := first(t, w[0]); id != 20000101*numbersADay+1 {
			t.Fatalf("the first ID is %d", id)
		}
		time.Sleep(10*time.Minute - 500*time.Millisecond)
		if id := first(t, w[0]); day(id) != 1 {
			t.Errorf("half a second before midnight an ID is %d", id)
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		got, err := w[0].Next("d", 1, nil)
		if err != nil || got[0].Start != 20000102*numbersADay+1 {
			t.Errorf("at midnight an ID is %v, %v; want the first of the day, from memory", got, err)
		}
	})
}

// A tag that was requested in the last hour of a day is in use.
func TestATagThatIsNotInUseLoadsNothingAtMidnight(t *testing.T) {
	daily := segment.Rules{Period: segment.Daily}
	for idle, inUse := range map[time.Duration]bool{62 * time.Minute: false, 58 * time.Minute: true} {
		walls := []*wall{{offset: 10*time.Minute - idle}}
		withClocks(t, daily, walls, func(t *testing.T, w []*segment.Allocator, m *segmenttest.Memory) {
			first(t, w[0])
			synctest.Wait()
			before, _ := m.Look(t.Context(), "d")
			time.Sleep(idle + time.Minute)
			if after, _ := m.Look(t.Context(), "d"); (after.MaxID != before.MaxID) != inUse {
				t.Errorf("requested %v before: the mark went from %d to %d", idle, before.MaxID, after.MaxID)
			}
			if id := first(t, w[0]); id != 20000102*numbersADay+1 {
				t.Errorf("the next day begins with %d", id)
			}
		})
	}
}

// Whatever else a worker is in the middle of, it gives out no ID of a past day.
func TestNoStateOfAWorkerServesAPastDay(t *testing.T) {
	for name, enter := range map[string]func(a *segment.Allocator, w *wall){
		"loads":             func(*segment.Allocator, *wall) {},
		"its loads fail":    func(a *segment.Allocator, _ *wall) { a.Hold(errors.New("stopped")) },
		"others load":       func(a *segment.Allocator, _ *wall) { a.TurnAway(true) },
		"its clock is lost": func(_ *segment.Allocator, w *wall) { w.set(0, true) },
		"was told to poll":  func(a *segment.Allocator, _ *wall) { a.Refresh(); a.Changed("d") },
	} {
		own := new(wall)
		withClocks(t, segment.Rules{Period: segment.Daily}, []*wall{own},
			func(t *testing.T, w []*segment.Allocator, m *segmenttest.Memory) {
				first(t, w[0])
				enter(w[0], own)
				time.Sleep(10*time.Minute + time.Millisecond)
				if got, err := w[0].Next("d", 1, nil); err == nil && day(got[0].Start) == 1 {
					t.Errorf("%s: after midnight an ID is %d", name, got[0].Start)
				}
			})
	}
}

// A load that began before midnight ends after it, between two looks at the calendar.
func TestALoadThatEndsAfterMidnightAnswersNobody(t *testing.T) {
	w1 := &wall{}
	withClocks(t, segment.Rules{Period: segment.Daily}, []*wall{w1},
		func(t *testing.T, w []*segment.Allocator, m *segmenttest.Memory) {
			first(t, w[0])
			w1.set(10*time.Minute-1010*time.Millisecond, false) // the clock jumps: it is 23:59:58.99
			w1.late = 1150 * time.Millisecond
			if id := take(t, w[0], "d", 1000)[0].Start; day(id) != 2 {
				t.Errorf("after midnight an ID is %d", id)
			}
		})
}

func TestAClockThatIsNotSureBeginsNoDay(t *testing.T) {
	sure, doubtful := &wall{}, &wall{unsure: true}
	withClocks(t, segment.Rules{Period: segment.Daily}, []*wall{doubtful, sure},
		func(t *testing.T, w []*segment.Allocator, m *segmenttest.Memory) {
			if _, err := segmenttest.Take(t.Context(), w[0], "d", 1); !errors.Is(err, segment.ErrClock) {
				t.Fatalf("an unsure clock: %v, want why", err)
			}
			first(t, w[1])
			if id := first(t, w[0]); day(id) != 1 {
				t.Errorf("once another worker has begun the day an ID is %d", id)
			}
		})
}

func TestABoundOnHolesHoldsAtAnySpeed(t *testing.T) {
	for _, most := range []int64{1, 2, 7, 100} {
		rules := segment.Rules{MaxHole: most}
		withClocks(t, rules, []*wall{{}}, func(t *testing.T, w []*segment.Allocator, m *segmenttest.Memory) {
			issued := int64(0)
			for i := range 3000 {
				n := int64(1 + i%3)
				issued = max(issued, take(t, w[0], "d", n)[0].Start+n-1)
				synctest.Wait() // loads have ended
				now, err := m.Look(t.Context(), "d")
				if hole := now.MaxID - 1 - issued; err != nil || hole > most {
					t.Fatalf("a crash would waste %d IDs, want at most %d; %v", hole, most, err)
				}
			}
			if s, _ := w[0].StatsOf("d"); s.Step > most {
				t.Errorf("the next step that is shown is %d, and a crash may waste %d", s.Step, most)
			}
		})
	}
}
