package simulation_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/testkit/raced"
)

// schedules is the default number of simulated schedules; repeated is how many are compared with a second run.
var schedules, repeated = raced.Or(100, 3_000), raced.Or(10, 100)

var (
	simN    = flag.Int("sim.n", schedules, "how many schedules to simulate")
	simSeed = flag.Uint64("sim.seed", 0, "simulate this one schedule and print its story; 0 for many")
	simFrom = flag.Uint64("sim.from", 1, "seed of the first of many schedules")
)

func TestMain(m *testing.M) {
	jitter.Source = fromTheTime
	flag.Parse()
	os.Exit(m.Run())
}

// fromTheTime returns a number in [0, 1) that looks random and follows from the virtual time.
func fromTheTime() float64 {
	x := uint64(time.Now().UnixNano())
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}

// TestSimulation runs workers, with the real allocator, guard, KV store and bucket, through random schedules of faults
// in virtual time, over a simulated JetStream and a simulated table. It checks at each answer that no ID is issued
// twice and that raised and deleted tags are heeded, that requests are answered by their deadlines, and in the end,
// when all is repaired, that each worker serves each tag.
//
// A seed makes the same schedule each time: see [agenda]. A schedule that fails is run again and prints its story.
func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		story := &story{out: t.Output()}
		if err := simulate(t, *simSeed, story); err != nil {
			t.Errorf("seed %d: %v", *simSeed, err)
		}
		return
	}
	if testing.Short() {
		*simN = min(*simN, 100)
	}
	// Heaps are small, and would be collected all the time.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	began := time.Now()
	var next, ids, lives atomic.Uint64
	next.Store(*simFrom)
	end := *simFrom + uint64(*simN)
	t.Run("schedules", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1) - 1; seed < end && !t.Failed(); seed = next.Add(1) - 1 {
					s := new(story)
					if err := simulate(t, seed, s); err != nil {
						next.Store(end)
						again := simulate(t, seed, &story{out: t.Output()})
						t.Errorf("seed %d: %v (in a second run: %v)\n"+
							"to replay it: go test -v ./segment/simulation -run TestSimulation -args -sim.seed=%d",
							seed, err, again, seed)
					}
					ids.Add(s.ids)
					lives.Add(s.lives)
				}
			})
		}
	})
	t.Logf("%d schedules, %d lives of workers, %d IDs in %v",
		*simN, lives.Load(), ids.Load(), time.Since(began).Round(time.Millisecond))
}

// A schedule must be the same each time, or a failure could not be replayed.
func TestASeedMakesTheSameScheduleEachTime(t *testing.T) {
	seeds := uint64(repeated)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		if seed%12 == 8 {
			continue // loads are passed on: of two that end at one instant any may be noted first
		}
		var a, b strings.Builder
		errA := simulate(t, seed, &story{out: &a})
		errB := simulate(t, seed, &story{out: &b})
		if a.String() != b.String() || fmt.Sprint(errA) != fmt.Sprint(errB) {
			t.Fatalf("seed %d: two stories:\n%s\n\n%s", seed, a.String(), b.String())
		}
	}
}

// A story is the log of a schedule.
type story struct {
	out        interface{ Write([]byte) (int, error) } // nil: not printed
	ids, lives uint64
}

func simulate(t *testing.T, seed uint64, s *story) (err error) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed, s)
		w.live()
		err = w.breach
	})
	return err
}
