package lineage

import (
	"context"
	"flag"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
)

var (
	simN    = flag.Int("sim.n", schedules, "how many schedules to simulate")
	simFrom = flag.Uint64("sim.from", 1, "seed of the first of many schedules")
	simSeed = flag.Uint64("sim.seed", 0, "simulate this one schedule and print its story; 0 for many")
)

// checkOnce is one check, as Run makes it.
func (w *Member) checkOnce(ctx context.Context, thorough bool) error {
	return w.checks.do(ctx, func() error { return w.checks.check(ctx, thorough) })
}

// optionsOf returns what the world of a seed is like: every fourth has no restore.
func optionsOf(seed uint64) options {
	o := options{
		restores: 1 + int(seed/4%4), volatile: int(seed / 16 % 4), table: seed%3 == 0, skewed: seed%5 == 0,
	}
	if seed%4 == 0 {
		o.restores = 0
	}
	return o
}

// TestSimulation plays random schedules of workers, backups, restores, operators and faults, with the real member. No
// ID may repeat but what an undetected restore repeats, no registry may stop without a restore, and each stop must
// end.
func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		w := newWorld(*simSeed, optionsOf(*simSeed), os.Stdout)
		w.live(250)
		if w.breach != nil {
			t.Error(w.breach)
		}
		return
	}
	if testing.Short() {
		*simN = min(*simN, 300)
	}
	var next, restores, incidents, resumes, decisions, issued atomic.Int64
	next.Store(int64(*simFrom))
	end := int64(*simFrom) + int64(*simN)
	t.Run("schedules", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1) - 1; seed < end && !t.Failed(); seed = next.Add(1) - 1 {
					w := newWorld(uint64(seed), optionsOf(uint64(seed)), nil)
					w.live(250)
					restores.Add(int64(w.restores))
					incidents.Add(int64(w.incidents))
					resumes.Add(int64(w.resumes))
					decisions.Add(int64(w.decisions))
					issued.Add(int64(w.count))
					if w.breach != nil {
						next.Store(end)
						t.Errorf("seed %d: %v\nto replay it: go test ./lineage -run TestSimulation -args -sim.seed=%d",
							seed, w.breach, seed)
					}
				}
			})
		}
	})
	t.Logf("%d schedules, %d restores, %d incidents, %d eras, %d decisions, %d times IDs were issued",
		*simN, restores.Load(), incidents.Load(), resumes.Load(), decisions.Load(), issued.Load())
}
