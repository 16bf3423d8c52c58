package segment_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// A ledger is the simple second implementation: lists of every range that a store returned, and of every run of IDs
// that callers got.
type ledger struct {
	mu     sync.Mutex
	loaded []segment.Range
	given  []segment.Range
}

func (l *ledger) load(r segment.Range) { l.mu.Lock(); l.loaded = append(l.loaded, r); l.mu.Unlock() }

func (l *ledger) give(rs []segment.Range) {
	l.mu.Lock()
	l.given = append(l.given, rs...)
	l.mu.Unlock()
}

// settle checks that the loaded IDs are those issued and those left, each ID once.
func (l *ledger) settle(t *testing.T, left []segment.RangeStats) {
	t.Helper()
	spent := slices.Clone(l.given)
	for _, r := range left {
		if r.Next <= r.Last {
			spent = append(spent, segment.Range{Start: r.Next, End: r.Last + 1})
		}
	}
	slices.SortFunc(spent, func(x, y segment.Range) int { return int(x.Start - y.Start) })
	i := 0
	for _, r := range l.loaded { // in order: a tag has one load at a time
		for at := r.Start; at < r.End; i++ {
			if i == len(spent) || spent[i].Start != at || spent[i].End > r.End || spent[i].Len() < 1 {
				t.Fatalf("loaded %v; at %d it continues with %v", r, at,
					spent[min(i, len(spent)-1):min(i+3, len(spent))])
			}
			at = spent[i].End
		}
	}
	if i < len(spent) {
		t.Fatalf("%v was never loaded", spent[i:])
	}
}

// order checks that a request gets higher IDs than all requests that ended before it began.
type order struct{ highest atomic.Int64 }

func (o *order) check(t *testing.T, ask func() ([]segment.Range, error)) ([]segment.Range, error) {
	before := o.highest.Load()
	rs, err := ask()
	if err != nil || len(rs) == 0 {
		return rs, err
	}
	if rs[0].Start <= before || !slices.IsSortedFunc(rs,
		func(x, y segment.Range) int { return int(x.Start - y.Start) }) {
		t.Errorf("got %v after %d was issued", rs, before)
	}
	last := rs[len(rs)-1].End - 1
	for h := o.highest.Load(); h < last && !o.highest.CompareAndSwap(h, last); h = o.highest.Load() {
	}
	return rs, err
}

func TestUnderStressEveryIDIsIssuedOnceInOrderAndNoneIsLost(t *testing.T) {
	for _, step := range []int64{1, 7, 100, 5000} {
		t.Run(fmt.Sprint("step", step), func(t *testing.T) { stress(t, step, 150*time.Millisecond) })
	}
}

func stress(t *testing.T, step int64, d time.Duration) {
	var l ledger
	var o order
	store := &segmenttest.Faulty{Store: new(segmenttest.Memory)}
	create(t, store, segment.Tag{Name: "a", Step: step, MaxID: 1})
	store.OnLoad(func(_ context.Context, _ string, load loadFunc) (segment.Range, error) {
		time.Sleep(rand.N(300 * time.Microsecond))
		if rand.N(10) == 0 {
			_, _ = load() // a hole: it succeeded, and returned an error
			return segment.Range{}, segmenttest.ErrInjected
		}
		r, err := load()
		if err == nil {
			l.load(r)
		}
		return r, err
	})
	a := segment.New(segment.Config{Store: store, MaxStep: 4 * step, LoadTimeout: time.Second,
		Deadline: 20 * time.Millisecond, MaxWaiting: 64})
	defer a.Close()
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for time.Now().Before(end) {
				n := int64(1)
				if rand.N(4) == 0 {
					n = 1 + rand.N(3*step)
				}
				take := func() ([]segment.Range, error) { return segmenttest.Take(context.Background(), a, "a", n) }
				rs, err := o.check(t, func() ([]segment.Range, error) { return a.Next("a", n, nil) })
				if errors.Is(err, segment.ErrWait) {
					rs, err = o.check(t, take)
				}
				if err == nil && count(rs) != n {
					t.Errorf("asked %d, got %v", n, rs)
				}
				l.give(rs)
				a.StatsOf("a")
			}
		})
	}
	wg.Go(func() { parkInTurn(t, a, &l, end) })
	wg.Wait()
	time.Sleep(25 * time.Millisecond) // whatever was parked is answered
	for s, _ := a.StatsOf("a"); ; s, _ = a.StatsOf("a") {
		l.mu.Lock()
		settled := len(l.loaded) == int(s.Loads)
		if settled {
			l.settle(t, s.Ranges)
			t.Logf("%d ranges, %d answers", len(l.loaded), len(l.given))
		}
		l.mu.Unlock()
		if settled {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// parkInTurn parks requests one after the other, several at a time, and checks that they are served in that order.
func parkInTurn(t *testing.T, a *segment.Allocator, l *ledger, end time.Time) {
	for time.Now().Before(end) {
		got := make([][]segment.Range, 8)
		var all sync.WaitGroup
		for i := range got {
			all.Add(1)
			err := a.Park("a", 1+rand.N(int64(20)), func(rs []segment.Range, _ error) { got[i] = rs; all.Done() })
			if err != nil {
				all.Done()
			}
		}
		all.Wait()
		last := int64(0)
		for _, rs := range got {
			l.give(rs)
			if len(rs) > 0 && rs[0].Start <= last {
				t.Errorf("parked in turn, served %v", got)
			}
			if len(rs) > 0 {
				last = rs[len(rs)-1].End - 1
			}
		}
	}
}

func TestNoIDIsIssuedAfterClose(t *testing.T) {
	for range 200 {
		store := new(segmenttest.Memory)
		create(t, store, segment.Tag{Name: "a", Step: 1 << 30, MaxID: 1})
		a := segment.New(segment.Config{Store: store, Deadline: deadline})
		take(t, a, "a", 1)
		var closed atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				was := closed.Load()
				if _, err := a.Next("a", 1, nil); err != nil {
					return
				} else if was {
					t.Error("an ID after Close")
					return
				}
			}
		})
		a.Close()
		closed.Store(true)
		wg.Wait()
	}
}

func TestCountsOutOfRangeAreRefusedAndMoveNothing(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *segment.Allocator, _ *segmenttest.Faulty) {
		take(t, a, "a", 5)
		for _, n := range []int64{0, -1, -5, -1 << 63, segment.MaxStep + 1, 1<<63 - 1} {
			if r, err := a.Next("a", n, nil); !errors.Is(err, segment.ErrInvalid) || len(r) > 0 {
				t.Errorf("Next %d: %v, %v", n, r, err)
			}
			if err := a.Park("a", n, nil); !errors.Is(err, segment.ErrInvalid) {
				t.Errorf("Park %d: %v", n, err)
			}
		}
		if got := take(t, a, "a", 1)[0].Start; got != 6 {
			t.Errorf("then ID %d, want 6", got)
		}
	})
}
