// Package schedules plays simulations: many schedules of failures in virtual time, each decided by its seed.
package schedules

import (
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/internal/testkit/raced"
)

// Usual is the default number of schedules; repeated is how many are compared with a second run.
var Usual, repeated = raced.Or(30, 1_000), raced.Or(5, 100)

var (
	number = flag.Int("sim.n", Usual, "how many schedules to simulate")
	one    = flag.Uint64("sim.seed", 0, "simulate this one schedule and print its story; 0 for many")
	from   = flag.Uint64("sim.from", 1, "seed of the first of many schedules")
)

// A Story is the log of a schedule.
type Story struct {
	Out        io.Writer // nil: not printed
	IDs, Lives uint64    // that the schedule has seen
}

// A Simulation plays the schedule of a seed within a bubble of virtual time, and returns the first breach of a law.
type Simulation func(seed uint64, s *Story) (breach error)

func (play Simulation) in(t *testing.T, seed uint64, s *Story) (breach error) {
	synctest.Test(t, func(*testing.T) { breach = play(seed, s) })
	return breach
}

// Play plays many schedules, at most short of them with -short. One that fails is played again and prints its story;
// the error names the folder of the test, in which it can be replayed.
func (play Simulation) Play(t *testing.T, short int, folder string) {
	if *one != 0 {
		if err := play.in(t, *one, &Story{Out: t.Output()}); err != nil {
			t.Errorf("seed %d: %v", *one, err)
		}
		return
	}
	if testing.Short() {
		*number = min(*number, short)
	}
	// Heaps are small, and would be collected all the time.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	began := time.Now()
	var next, ids, lives atomic.Uint64
	next.Store(*from)
	end := *from + uint64(*number)
	t.Run("schedules", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1) - 1; seed < end && !t.Failed(); seed = next.Add(1) - 1 {
					s := new(Story)
					if err := play.in(t, seed, s); err != nil {
						next.Store(end)
						again := play.in(t, seed, &Story{Out: t.Output()})
						t.Errorf("seed %d: %v (in a second run: %v)\n"+
							"to replay it: go test -v ./%s -run TestSimulation -args -sim.seed=%d",
							seed, err, again, folder, seed)
					}
					ids.Add(s.IDs)
					lives.Add(s.Lives)
				}
			})
		}
	})
	t.Logf("%d schedules, %d lives of workers, %d IDs in %v",
		*number, lives.Load(), ids.Load(), time.Since(began).Round(time.Millisecond))
}

// Repeat checks that a seed makes the same schedule each time: a failure could not be replayed otherwise. Given -sim.n
// or -sim.from it compares those schedules instead of the first ones. Those that isChance reports are left out.
func (play Simulation) Repeat(t *testing.T, isChance func(seed uint64) bool) {
	n := *number
	switch {
	case testing.Short():
		n = 15
	case n == Usual:
		n = repeated
	}
	for seed := *from; seed < *from+uint64(n); seed++ {
		if isChance(seed) {
			continue
		}
		var a, b strings.Builder
		errA, errB := play.in(t, seed, &Story{Out: &a}), play.in(t, seed, &Story{Out: &b})
		if a.String() != b.String() || fmt.Sprint(errA) != fmt.Sprint(errB) {
			t.Fatalf("seed %d: two stories:\n%s\n\n%s", seed, a.String(), b.String())
		}
	}
}
