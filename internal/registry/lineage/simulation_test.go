package lineage

import (
	"context"
	"flag"
	"io"
	"os"
	"testing"
	"testing/cryptotest"

	"github.com/natsid/natsid/internal/testkit/raced"
)

// schedules is the default number of simulated schedules.
var schedules = raced.Or(25, 500)

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
		if w := play(t, *simSeed, os.Stdout); w.breach != nil {
			t.Error(w.breach)
		}
		return
	}
	if testing.Short() {
		*simN = min(*simN, 300)
	}
	var sum world
	for seed := *simFrom; seed < *simFrom+uint64(*simN); seed++ {
		w := play(t, seed, nil)
		if w.breach != nil {
			t.Fatalf("seed %d: %v\nto replay it: go test ./internal/registry/lineage -run TestSimulation "+
				"-args -sim.seed=%d", seed, w.breach, seed)
		}
		sum.restores += w.restores
		sum.incidents += w.incidents
		sum.resumes += w.resumes
		sum.decisions += w.decisions
		sum.count += w.count
	}
	t.Logf("%d schedules, %d restores, %d incidents, %d eras, %d decisions, %d times IDs were issued",
		*simN, sum.restores, sum.incidents, sum.resumes, sum.decisions, sum.count)
}

// play plays the schedule of a seed, which decides all of it: also the random IDs, so that no two are played at a time.
func play(t *testing.T, seed uint64, out io.Writer) *world {
	cryptotest.SetGlobalRandom(t, seed)
	w := newWorld(seed, optionsOf(seed), out)
	w.live(250)
	return w
}
