package worker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// throughput returns how many IDs of tags workers together admit in so many seconds, asked every ms.
func throughput(seconds int, workers []*Limits, batch int, tags ...string) (ids int) {
	for now := time.Duration(0); now < time.Duration(seconds)*time.Second; now += time.Millisecond {
		for _, g := range workers {
			for _, tag := range tags {
				if g.Admit(tag, batch, now) == nil {
					ids += batch
				}
			}
		}
	}
	return ids
}

// A rules is those of tags; that of the tag "" is the throttle.
type rules map[string]segment.Rules

func (of rules) limits(workers int64) *Limits {
	g := NewLimits(func(tag string) segment.Rules { return of[tag] }, func() int64 { return of[""].Rate })
	g.workers.Store(workers)
	return g
}

func limitsOf(workers int, of rules) (all []*Limits) {
	for range workers {
		all = append(all, of.limits(int64(workers)))
	}
	return all
}

func TestTheFleetIssuesARateAndNotMore(t *testing.T) {
	for _, tc := range []struct {
		rules   rules
		workers int
		batch   int
		rate    int
	}{
		{rules{"a": {Rate: 100}}, 1, 1, 100},
		{rules{"a": {Rate: 100}}, 4, 1, 100},
		{rules{"a": {Rate: 100}}, 4, 500, 100},
		{rules{"a": {Rate: 100}, "": {Rate: 50}}, 4, 1, 50},
		{rules{"a": {Rate: 100}, "": {Rate: 500}}, 4, 1, 100},
		{rules{"": {Rate: 50}}, 4, 10, 50},
		{rules{"a": {Rate: 1_000_000_000}}, 3, 1_000_000, 1_000_000_000},
	} {
		t.Run(fmt.Sprintf("%d workers %+v", tc.workers, tc), func(t *testing.T) {
			const seconds = 100
			got := throughput(seconds, limitsOf(tc.workers, tc.rules), tc.batch, "a")
			if most := tc.rate*(seconds+1) + tc.workers*tc.batch; got > most {
				t.Errorf("%d IDs in %d s, want at most %d", got, seconds, most)
			}
			if least := tc.rate * seconds * 9 / 10; got < least {
				t.Errorf("%d IDs in %d s, want at least %d", got, seconds, least)
			}
		})
	}
}

func TestAThrottleOfEachTagLeavesEachItsOwn(t *testing.T) {
	workers := limitsOf(2, rules{"": {Rate: 10}})
	throughput(10, workers, 1, "busy")
	if err := workers[0].Admit("quiet", 1, 10*time.Second); err != nil {
		t.Error("one tag used up another's:", err)
	}
}

func TestTagsWithoutLimitAreFree(t *testing.T) {
	var none *Limits
	limited := rules{"other": {MaxBatch: 1, Rate: 1}}.limits(1)
	for _, g := range []*Limits{none, limited} {
		if got := throughput(1, []*Limits{g}, 1_000_000, "a"); got != 1_000_000_000 {
			t.Errorf("%d IDs of 1000000000", got)
		}
		if n := testing.AllocsPerRun(100, func() { _ = g.Admit("a", 1, 0) }); n != 0 {
			t.Errorf("%v allocations for a tag that is free", n)
		}
	}
}

func TestTheLargestBatchIsKept(t *testing.T) {
	g := rules{"a": {MaxBatch: 100}}.limits(1)
	if err := g.Admit("a", 100, 0); err != nil {
		t.Error(err)
	}
	if e, ok := g.Admit("a", 101, 0).(*subjects.Error); !ok || e.MaxBatch != 100 {
		t.Errorf("101 of 100: %v", e)
	}
	if g.Fits("a", 100) != nil || g.Fits("a", 101) == nil {
		t.Error("a load that shows the limit shows another one")
	}
}

func TestOneRequestShutsATagForAMinuteAtMost(t *testing.T) {
	g := rules{"a": {Rate: 10}, "slow": {Rate: 1}}.limits(2)
	e, ok := g.Admit("a", 100_000, 0).(*subjects.Error)
	if !ok || e.MaxBatch != 300 { // 10/2 a second
		t.Fatalf("100000 at 10/s: %v", e)
	}
	if err := g.Admit("a", e.MaxBatch, 0); err != nil {
		t.Fatal(err)
	}
	if err := g.Admit("a", 1, time.Minute+time.Millisecond); err != nil {
		t.Error("after a minute:", err)
	}
	g.workers.Store(1000)
	if err := g.Admit("slow", 1, 0); err != nil {
		t.Error("one ID is always small enough:", err)
	}
}

func TestWhoWaitsAsLongAsToldIsAdmitted(t *testing.T) {
	g, now := rules{"a": {Rate: 7}}.limits(1), time.Duration(0)
	for range 1000 {
		n := 1 + rand.IntN(30)
		e, ok := g.Admit("a", n, now).(*subjects.Error)
		if !ok {
			continue
		}
		if now += e.RetryAfter; g.Admit("a", n, now) != nil {
			t.Fatal("refused after the wait")
		}
	}
}

// An attacker cannot get more by making operators change limits.
func TestNewLimitsGiveNoNewBurst(t *testing.T) {
	l := rules{"a": {Rate: 100}}
	g := l.limits(1)
	got := 0
	for i := range 1000 {
		l["a"], l[""] = segment.Rules{Rate: 100 + int64(i%2)}, segment.Rules{Rate: 1000 + int64(i%2)}
		got += throughput(1, []*Limits{g}, 1, "a") // always in the same second
	}
	if got > 202+1 {
		t.Errorf("%d IDs in 1 s at 100/s", got)
	}
}

func TestACountRisesAtOnceAndFallsWhenTwoAreLower(t *testing.T) {
	var c count
	for i, step := range []struct{ counted, want int64 }{{3, 3}, {5, 5}, {3, 5}, {4, 4}, {1, 4}, {1, 1}, {2, 2}} {
		if got := c.of(step.counted); got != step.want {
			t.Errorf("count %d: %d workers after %d answers, want %d", i, got, step.counted, step.want)
		}
	}
}

func TestWhatIsUsedNeverExceedsTheRateTheBurstAndTheLastUse(t *testing.T) {
	const rate, burst, largest = 1000, 2 * time.Second, 5000
	rng := rand.New(rand.NewPCG(1, 2))
	b, used, last := full(burst), int64(0), int64(0)
	now := time.Duration(0)
	for range 100_000 {
		now += time.Duration(rng.Int64N(int64(time.Second)))
		n := 1 + rng.Int64N(largest)
		if b.take(now, burst, n, rate) == 0 {
			used, last = used+n, n
		}
		if most := rate*(now+burst).Seconds() + float64(last); float64(used) > most+1 {
			t.Fatalf("%d used by %v, want at most %.0f", used, now, most)
		}
	}
	if least := rate * now.Seconds() * 0.9; float64(used) < least {
		t.Errorf("%d used by %v though more was asked for, want %.0f at least", used, now, least)
	}
}

func TestARestGivesOneBurstAndNoMore(t *testing.T) {
	for _, rest := range []time.Duration{0, time.Minute, 24 * time.Hour} {
		b, got := full(2*time.Second), 0
		for b.take(rest, 2*time.Second, 1, 10) == 0 {
			got++
		}
		if got != 20 {
			t.Errorf("after %v: %d at once, want 20", rest, got)
		}
	}
}

func TestGoroutinesTogetherUseNoMore(t *testing.T) {
	const rate, burst, now = 1e6, time.Second, time.Minute
	b := full(burst)
	var used atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for b.take(now, burst, 7, rate) == 0 {
				used.Add(7)
			}
		})
	}
	all.Wait()
	if n := used.Load(); n < rate || n >= rate+7 {
		t.Errorf("%d used at one moment, want %.0f and at most one use more", n, rate)
	}
}

func full(burst time.Duration) *bucket {
	b := new(bucket)
	b.fill(burst)
	return b
}
