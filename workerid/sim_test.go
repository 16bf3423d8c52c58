package workerid_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
)

var (
	simN    = flag.Int("sim.n", schedules, "how many schedules to simulate")
	simSeed = flag.Uint64("sim.seed", 0, "simulate this one schedule and print its story; 0 for many")
	simFrom = flag.Uint64("sim.from", 1, "seed of the first of many schedules")
)

// TestSimulation runs fleets of workers, with the real keeper and generator,
// through random schedules of faults in virtual time. It checks the law after
// each fault and at each generator and ID: no tick of a worker number is ever
// held by two generators, and no position is issued twice. In the end all faults
// are repaired, and the fleet must serve again within a bound.
//
// The faults: calls are lost on the way, acknowledgements are lost, writes land
// up to 20 s late, or are seen by stale reads and then rolled back; reads are up
// to six changes old; heartbeats expire early or late; the question for a
// number's holder gets a wrong answer or none; the registry is down, wiped,
// restored from an old state, or created again with what it held; a worker is cut
// off; workers crash or stand still at any call, reading of the clock or write of
// the disk, stop cleanly, restart, lose their disk; disks fail before or after the
// write, or hang; clocks are set by milliseconds to years, and drift.
//
// In a third of the schedules the registry loses its state. There, clocks differ
// by half the skew at most, questions are answered truly, and operators do what
// docs/uniqueness.md asks of them. In all others the registry keeps what it
// acknowledged, and clocks do as they like.
//
// A seed makes the same schedule each time. A schedule that fails is run again
// and prints its story.
func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		story := &story{out: t.Output()}
		if err := simulate(t, *simSeed, story); err != nil {
			t.Errorf("seed %d: %v", *simSeed, err)
		}
		return
	}
	if testing.Short() {
		*simN = min(*simN, 300)
	}
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
							"to replay it: go test ./workerid -run TestSimulation -args -sim.seed=%d",
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
	for seed := uint64(1); seed <= 200; seed++ {
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
		w.run()
		err = w.breach
	})
	return err
}

// A world is a registry, the machines that workers run on, and the faults of
// both.
type world struct {
	story *story
	rnd   *rand.Rand
	begin time.Time
	conf  workerid.Config

	// lossy worlds lose the registry's state, but their clocks are right within
	// half the skew, and workers reach one another and the registry: the promise
	// holds within these bounds only. In all others clocks do as they like, and the
	// question who has a number may get a wrong answer.
	lossy bool
	span  time.Duration // how long faults are injected
	rare  int           // of how many calls about one fails in each way
	ttl   time.Duration // of heartbeats
	pace  time.Duration // of faults

	mu         sync.Mutex
	breach     error // the first one
	reg        registryState
	past       []registryState // for stale reads, the newest last
	backups    []registryState
	down       bool          // the registry is out of reach
	stale      bool          // reads may be old
	slip       time.Duration // of the registry's own clock
	healthy    bool          // no fault is injected
	machines   []*machine
	generators map[int][]*held // by worker number
	issued     map[position]*cell
	wg         sync.WaitGroup
}

// registryState is what the registry holds. Each change makes a new one.
type registryState struct {
	deployment workerid.Deployment
	records    map[int]workerid.Record
	heartbeats map[int]workerid.Heartbeat
	revision   uint64
}

type position struct {
	number int
	tick   int64
}

// A cell is the generator that issued in one tick of a number, and its sequences.
type cell struct {
	by        *held
	sequences uint64
}

// held is one generator and the life that holds it.
type held struct {
	*snowflake.Generator
	life    *process
	crashed bool // while it was open
	issued  bool // anything at all
}

// end returns a time at or after which no tick of it ever begins.
func (h *held) end() int64 {
	if !h.crashed && h.closed() {
		return min(h.Close(), h.Until()) // the end of a last tick may lie beyond
	}
	return h.Until()
}

func (h *held) closed() bool { return errors.Is(h.CheckAt(h.From()), snowflake.ErrClosed) }

// A machine is where lives of one worker follow one another.
type machine struct {
	world *world
	name  string
	rnd   *rand.Rand

	// Under world.mu.
	life   *process
	disk   []byte        // the state file
	bare   bool          // no state file
	slip   time.Duration // of the clock from true time
	drift  float64       // of the clock, s/s
	driftT time.Time     // since when
	cut    bool          // it does not reach the registry
	broken int           // the disk: 0 works, 1 fails, 2 hangs
}

// A process is one life of a worker, on a machine.
type process struct {
	*machine
	// Random choices of the keeper, of its disk and of its work: separate, since
	// they run concurrently.
	rnd, ofDisk, ofWork *rand.Rand

	keeper *workerid.Keeper
	cancel context.CancelFunc
	done   chan struct{}

	// Under world.mu.
	dead      bool
	steps     int // steps until it crashes, if over 0
	pause     int // steps until it is stopped for pauseFor, if over 0
	pauseFor  time.Duration
	stoppedTo time.Time // it stands still until then
	reached   time.Time // when it last had a reply from the registry
	gen       *held
}

func newWorld(seed uint64, s *story) *world {
	r := rand.New(rand.NewPCG(seed, 4))
	w := &world{
		story: s, rnd: r, begin: time.Now(), generators: make(map[int][]*held), issued: make(map[position]*cell),
		lossy: r.IntN(3) == 0, rare: []int{12, 40, 120}[r.IntN(3)],
		ttl:  []time.Duration{time.Second, 20 * time.Second}[r.IntN(2)],
		pace: 6 * time.Second, span: time.Duration(20+r.IntN(100)) * time.Second,
		reg: registryState{
			records: map[int]workerid.Record{}, heartbeats: map[int]workerid.Heartbeat{}, revision: uint64(r.IntN(10)),
		},
	}
	unit := []int64{1, 1, 10, 1000}[r.IntN(4)]
	if w.lossy {
		w.rare = max(w.rare, 40)
	}
	w.conf = workerid.Config{
		Layout: snowflake.Layout{
			Time: 41, Worker: 1 + r.IntN(3), Business: r.IntN(2), Sequence: 2 + r.IntN(4), Unit: unit,
			Epoch: w.begin.UnixMilli() - 86_400_000 - r.Int64N(5000),
		},
		Horizon:      time.Duration([]int{1, 4, 20}[r.IntN(3)]*(1000+r.IntN(3000))) * time.Millisecond,
		Heartbeat:    time.Duration(1+r.IntN(3)) * time.Second,
		MaxClockSkew: time.Duration([]int{1, 1, 8}[r.IntN(3)]*(100+r.IntN(1500))) * time.Millisecond,
		MaxAhead:     time.Duration(r.IntN(20)) * time.Millisecond,
		Deadline:     time.Duration(500+r.IntN(1000)) * time.Millisecond,
		Reclaim:      r.IntN(2) == 0,
	}
	machines := 1 + r.IntN(4)
	if r.IntN(4) == 0 { // more workers than numbers, and each soon changes hands
		machines, w.ttl, w.pace, w.stale = 4, time.Second, 2*time.Second, r.IntN(2) == 0
		w.conf.Layout.Worker, w.conf.Horizon = 1, time.Duration(1000+r.IntN(3000))*time.Millisecond
		w.conf.MaxClockSkew = time.Duration(100+r.IntN(12_000)) * time.Millisecond
	}
	for i := range machines {
		m := &machine{
			world: w, name: fmt.Sprintf("m%d", i), rnd: rand.New(rand.NewPCG(seed, uint64(100+i))),
			bare: r.IntN(5) == 0, driftT: w.begin,
		}
		m.slip = w.skewed()
		w.machines = append(w.machines, m)
	}
	w.log("%+v, lossy %t, span %v, rare %d", w.conf.Layout, w.lossy, w.span, w.rare)
	w.log("horizon %v heartbeat %v skew %v ahead %v deadline %v reclaim %t", w.conf.Horizon, w.conf.Heartbeat,
		w.conf.MaxClockSkew, w.conf.MaxAhead, w.conf.Deadline, w.conf.Reclaim)
	return w
}

// skewed returns an error that clocks within the skew may have.
func (w *world) skewed() time.Duration {
	half := int64(w.conf.MaxClockSkew / 2)
	return time.Duration(w.rnd.Int64N(half) - half/2)
}

func (w *world) log(format string, args ...any) {
	if w.story.out != nil {
		fmt.Fprintf(w.story.out, "%12.6f  %s\n", time.Since(w.begin).Seconds(), fmt.Sprintf(format, args...))
	}
}

// fail notes the first breach of the law.
func (w *world) fail(format string, args ...any) {
	if w.breach == nil {
		w.breach = fmt.Errorf(format, args...)
		w.log("BREACH %v", w.breach)
	}
}

// run injects faults, then repairs the world and checks that the fleet serves
// again.
func (w *world) run() {
	for _, m := range w.machines {
		time.Sleep(chance(w.rnd, time.Second))
		w.mu.Lock()
		m.start()
		w.mu.Unlock()
	}
	for w.still() && time.Since(w.begin) < w.span {
		time.Sleep(chance(w.rnd, w.pace))
		w.inject()
		w.mu.Lock()
		w.check()
		w.mu.Unlock()
	}
	time.Sleep(chance(w.rnd, time.Millisecond))
	w.repair()
	w.serves()
	for _, m := range w.machines {
		w.mu.Lock()
		l := m.life
		w.mu.Unlock()
		l.cancel()
		<-l.done
	}
	w.mu.Lock()
	w.check()
	for _, m := range w.machines {
		m.life.dead = true
	}
	w.mu.Unlock()
	w.wg.Wait()
	time.Sleep(time.Minute) // for writes that hang
}

func (w *world) still() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.breach == nil
}

// chance returns a time of up to about d, odd enough that no two things ever
// happen at once: no seed would repeat their order.
func chance(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(1 + r.Int64N(int64(d)))
}

func (w *world) one(n int) bool { return w.rnd.IntN(n) == 0 }
