package ratelimit

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestWhatIsUsedNeverExceedsTheRateTheBurstAndTheLastUse(t *testing.T) {
	const rate, burst, largest = 1000, 2 * time.Second, 5000
	rng := rand.New(rand.NewPCG(1, 2))
	b, used, last := New(burst), int64(0), int64(0)
	now := time.Duration(0)
	for range 100_000 {
		now += time.Duration(rng.Int64N(int64(time.Second)))
		n := 1 + rng.Int64N(largest)
		if b.Take(now, n, rate) == 0 {
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
		b, got := New(2*time.Second), 0
		for b.Take(rest, 1, 10) == 0 {
			got++
		}
		if got != 20 {
			t.Errorf("after %v: %d at once, want 20", rest, got)
		}
	}
}

func TestWhoWaitsAsLongAsToldIsAdmittedAndNotBefore(t *testing.T) {
	for _, rate := range []float64{0.01, 1, 3, 1e6, 1e9} {
		b, now := New(time.Second), time.Duration(5)
		for range 50 {
			n := int64(math.Max(1, 2*rate))
			wait := b.Take(now, n, rate)
			if wait == 0 {
				continue
			}
			if early := now + wait - 1; early > now && b.Take(early, n, rate) == 0 {
				t.Fatalf("rate %v: admitted before its time", rate)
			}
			if now += wait; b.Take(now, n, rate) != 0 {
				t.Fatalf("rate %v: not admitted after %v", rate, wait)
			}
		}
	}
}

func TestARateOfNothingAdmitsOneUse(t *testing.T) {
	for _, rate := range []float64{0, -1, math.Inf(-1), math.NaN()} {
		b := New(time.Second)
		if b.Take(0, 1, rate) != 0 || b.Take(time.Hour, 1, rate) == 0 {
			t.Errorf("rate %v: want one use of what was left, and none after it", rate)
		}
	}
}

func TestGoroutinesTogetherUseNoMore(t *testing.T) {
	const rate, burst, now = 1e6, time.Second, time.Minute
	b := New(burst)
	var used atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for b.Take(now, 7, rate) == 0 {
				used.Add(7)
			}
		})
	}
	all.Wait()
	if n := used.Load(); n < rate || n >= rate+7 {
		t.Errorf("%d used at one moment, want %.0f and at most one use more", n, rate)
	}
}

func TestATakeAllocatesNothing(t *testing.T) {
	b := New(time.Second)
	if n := testing.AllocsPerRun(100, func() { b.Take(time.Minute, 1, 1e9) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
