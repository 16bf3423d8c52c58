package measure

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// sleeps returns a call that takes so long.
func sleeps(d time.Duration) func(context.Context) error {
	return func(context.Context) error {
		time.Sleep(d)
		return nil
	}
}

func named(err error) string { return err.Error() }

// near reports whether a duration is within 2 % of another, which is the
// precision of a histogram.
func near(got, want time.Duration) bool { return (got - want).Abs() <= want/50 }

func TestCallersCallAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := &Load{Callers: 4}
		f := load.Run(t.Context(), 995*time.Millisecond, sleeps(10*time.Millisecond))
		if f.Calls != 400 || f.Took != time.Second || f.PerSecond() != 400 || f.NotMade != 0 {
			t.Errorf("%d calls in %v, %v/s, %d not made", f.Calls, f.Took, f.PerSecond(), f.NotMade)
		}
		if !near(f.Latency(0.5), 10*time.Millisecond) || f.Latency(1) != 10*time.Millisecond {
			t.Errorf("median %v, longest %v", f.Latency(0.5), f.Latency(1))
		}
	})
}

func TestAStallDelaysTheCallsThatFellDueMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// One call in a second takes half of it. The 50 that fall due in that time wait
		// for it, 0.25 s in the mean, and each must show that.
		first := true
		call := func(context.Context) error {
			if first {
				first = false
				time.Sleep(500 * time.Millisecond)
			}
			return nil
		}
		load := &Load{Callers: 1, Rate: 100}
		f := load.Run(t.Context(), time.Second, call)
		if f.Calls != 100 || f.NotMade != 0 {
			t.Errorf("%d calls, %d not made", f.Calls, f.NotMade)
		}
		if got := f.Latency(0.75); !near(got, 250*time.Millisecond) {
			t.Errorf("a quarter of the calls waited for less than %v, want 250ms", got)
		}
		if got := f.Latency(0.4); got > time.Millisecond {
			t.Errorf("calls after the stall took %v", got)
		}
	})
}

func TestNoMoreCallsFallDueThanTheRateSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			rate   float64
			length time.Duration
			want   int64
		}{
			{100, time.Second, 100}, {100, 1001 * time.Millisecond, 101},
			{0.1, time.Minute, 6}, {1, time.Millisecond, 1}, {1e-300, time.Minute, 1},
		} {
			f := (&Load{Callers: 9, Rate: tc.rate}).Run(t.Context(), tc.length, sleeps(0))
			if f.Calls != tc.want || f.NotMade != 0 || f.Took != tc.length {
				t.Errorf("%v/s in %v: %d calls in %v, %d not made", tc.rate, tc.length, f.Calls, f.Took, f.NotMade)
			}
		}
	})
}

func TestACallThatFallsDueAtTheEndIsNotMade(t *testing.T) {
	for tenths := range 1000 {
		load := &Load{Rate: float64(tenths+1) / 10}
		for n := range int64(50) {
			if got := load.Due(load.due(n)); got != n {
				t.Fatalf("%v/s: %d calls fall due before call %d", load.Rate, got, n)
			}
		}
	}
}

func TestCallsThatNoCallerWasFreeToMakeAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := &Load{Callers: 2, Rate: 1000}
		f := load.Run(t.Context(), 995*time.Millisecond, sleeps(10*time.Millisecond))
		if f.Calls+f.NotMade != 995 || f.Calls != 200 {
			t.Errorf("%d calls, %d not made, want 995 together", f.Calls, f.NotMade)
		}
		if got := f.Latency(0.5); got < 300*time.Millisecond {
			t.Errorf("the median is %v, while each second falls 0.8 s behind", got)
		}
	})
}

func TestTheLimitIsKeptToTheCall(t *testing.T) {
	for _, load := range []*Load{
		{Callers: 16, Limit: 12345}, {Callers: 16, Limit: 12345, Rate: 1e6},
		{Callers: 100, Limit: 7}, {Callers: 1, Limit: 1},
	} {
		var made atomic.Int64
		f := load.Run(t.Context(), time.Minute, func(context.Context) error {
			made.Add(1)
			return nil
		})
		if n := made.Load(); n != load.Limit || f.Calls != n || f.Made != n || f.NotMade != 0 {
			t.Errorf("%+v: %d calls, %+v", load, n, f)
		}
	}
}

func TestErrorsAreCountedByNameAndSlowACallerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		call := func(context.Context) error {
			time.Sleep(time.Millisecond)
			if n++; n%10 == 0 {
				return nil
			}
			return []error{errors.New("x"), errors.New("y")}[n%2]
		}
		f := (&Load{Callers: 1, Name: named}).Run(t.Context(), 995*time.Millisecond, call)
		if f.Calls == 0 || f.Errors["x"] == nil || f.Errors["y"] == nil {
			t.Fatalf("%+v", f)
		}
		if f.Errors["x"].Count+f.Errors["y"].Count != f.Failed() || f.Errors["x"].First.Error() != "x" {
			t.Errorf("%+v and %+v are not %d errors", f.Errors["x"], f.Errors["y"], f.Failed())
		}
		if f.Failed() != 90 || f.Made != f.Calls+90 {
			t.Errorf("%d errors in a second, which take 11 ms each", f.Failed())
		}
	})
}

func TestAnInterruptedRunCountsWhatWasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []float64{0, 10} {
			ctx, cancel := context.WithTimeout(t.Context(), 1050*time.Millisecond)
			defer cancel()
			load := &Load{Callers: 1, Rate: rate, Name: named}
			f := load.Run(ctx, time.Hour, func(ctx context.Context) error {
				select {
				case <-time.After(100 * time.Millisecond):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			if f.Calls != 10 || f.Failed() != 0 || f.NotMade != 0 || f.Took != 1050*time.Millisecond {
				t.Errorf("rate %v: %d calls, %d errors, %d not made in %v",
					rate, f.Calls, f.Failed(), f.NotMade, f.Took)
			}
		}
	})
}

func TestEachCallerCallsInAShortRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if f := (&Load{Callers: 50}).Run(t.Context(), 0, sleeps(time.Second)); f.Calls != 50 || f.Took != time.Second {
			t.Errorf("%d calls in %v", f.Calls, f.Took)
		}
	})
}

func TestASampleIsTimedAndEveryCallCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := (&Load{Callers: 1, Sample: 7}).Run(t.Context(), 999500*time.Microsecond, sleeps(time.Millisecond))
		timed := int64(0)
		for _, n := range f.latency.counts {
			timed += n
		}
		if f.Calls != 1000 || timed != 143 {
			t.Errorf("%d calls, %d timed", f.Calls, timed)
		}
	})
}

func TestQuantilesAreThoseOfSortedDurations(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var s shards
	all := make([]time.Duration, 20_000)
	for i := range all {
		all[i] = time.Duration(random.ExpFloat64() * float64(int64(1)<<random.IntN(36)))
		s.note(i, all[i])
	}
	slices.Sort(all)
	// Two halves, added up.
	f := Figures{latency: *s.sum()}
	f.Add(&Figures{latency: *s.sum()})
	for _, part := range []float64{0, 0.001, 0.5, 0.9, 0.99, 0.999} {
		want := all[max(0, int(part*float64(len(all)))-1)]
		if got := f.Latency(part); !near(got, want) && (got-want).Abs() > 1 {
			t.Errorf("the quantile %v is %v, want %v", part, got, want)
		}
	}
	if got := f.Latency(1); got != all[len(all)-1] {
		t.Errorf("the longest is %v, want %v", got, all[len(all)-1])
	}
	if got := new(Figures).Latency(0.5); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
}

func TestEachDurationHasABucketNearIt(t *testing.T) {
	for shift := range 61 {
		for _, d := range []time.Duration{1 << shift, 1<<shift - 1, 1<<shift + 1<<shift/32 - 1, 3 << shift >> 1} {
			if b := bucketOf(d); b >= buckets || !near(middle(b), d) {
				t.Errorf("%d is in bucket %d, around %d", d, b, middle(b))
			}
		}
	}
}
