package workerid_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/bits"
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

// TestSimulation runs whole fleets, with the real keeper and generator, through
// schedules of chance in virtual time, and checks the law after every step: no
// tick of a worker number is ever held by two generators, and no position is
// issued twice. In the end the world is mended, and the fleet must serve again
// within a bound.
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
						told := &story{out: t.Output()}
						again := simulate(t, seed, told)
						t.Errorf("seed %d: %v (told again: %v)\nonce more: go test ./workerid -run TestSimulation -args -sim.seed=%d", seed, err, again, seed)
					}
					ids.Add(s.ids)
					lives.Add(s.lives)
				}
			})
		}
	})
	t.Logf("%d schedules, %d lives of workers, %d IDs in %v", *simN, lives.Load(), ids.Load(), time.Since(began).Round(time.Millisecond))
}

// A schedule must be the same each time, or its story would be another's.
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

// A story is what happened in a schedule.
type story struct {
	out        interface{ Write([]byte) (int, error) } // nil: nobody listens
	ids, lives uint64
}

func simulate(t *testing.T, seed uint64, s *story) (err error) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed, s)
		w.run()
		err = w.fault
	})
	return err
}

// A world is a registry, the machines that workers run on, and what befalls
// them.
type world struct {
	story *story
	rnd   *rand.Rand
	begin time.Time
	conf  workerid.Config

	// lossy worlds lose the registry's state, but their clocks are right to
	// within half the skew, workers reach one another, and the registry as it is:
	// the promise holds within these bounds only. In all others clocks do what
	// they like, and asking who has a number may be answered wrongly.
	lossy bool
	span  time.Duration // how long misfortune lasts
	rare  int           // of how many calls about one fails in each way
	ttl   time.Duration // of leases
	pace  time.Duration // of misfortune

	mu         sync.Mutex
	fault      error
	reg        registryState
	past       []registryState // for stale reads, the newest last
	backups    []registryState
	down       bool          // nobody reaches the registry
	stale      bool          // reads may be old
	slip       time.Duration // of the registry's own clock
	calm       bool          // misfortune is over
	machines   []*machine
	generators map[int][]*held // by worker number
	issued     map[position]*cell
	wg         sync.WaitGroup
}

// registryState is what the registry keeps. A new one is made by each change.
type registryState struct {
	deployment workerid.Deployment
	records    map[int]workerid.Record
	leases     map[int]workerid.Heartbeat
	revision   uint64
}

type position struct {
	number int
	tick   int64
}

// A cell is who issued in one tick of a number, and which sequences.
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

// end returns the time that no tick of it begins at or after, ever.
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
	// Chances of what the keeper does, of its disk and of its work: of each its
	// own, since they run side by side.
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
		lossy: r.IntN(3) == 0, rare: []int{12, 40, 120}[r.IntN(3)], ttl: []time.Duration{time.Second, 20 * time.Second}[r.IntN(2)], pace: 6 * time.Second, span: time.Duration(20+r.IntN(100)) * time.Second,
		reg: registryState{records: map[int]workerid.Record{}, leases: map[int]workerid.Heartbeat{}, revision: uint64(r.IntN(10))},
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
	if r.IntN(4) == 0 { // more workers than numbers, and each is soon another's
		machines, w.ttl, w.pace, w.stale = 4, time.Second, 2*time.Second, r.IntN(2) == 0
		w.conf.Layout.Worker, w.conf.Horizon = 1, time.Duration(1000+r.IntN(3000))*time.Millisecond
		w.conf.MaxClockSkew = time.Duration(100+r.IntN(12_000)) * time.Millisecond
	}
	for i := range machines {
		m := &machine{world: w, name: fmt.Sprintf("m%d", i), rnd: rand.New(rand.NewPCG(seed, uint64(100+i))), bare: r.IntN(5) == 0, driftT: w.begin}
		m.slip = w.skewed()
		w.machines = append(w.machines, m)
	}
	w.tell("%+v, lossy %t, span %v, rare %d", w.conf.Layout, w.lossy, w.span, w.rare)
	w.tell("horizon %v heartbeat %v skew %v ahead %v deadline %v reclaim %t", w.conf.Horizon, w.conf.Heartbeat, w.conf.MaxClockSkew, w.conf.MaxAhead, w.conf.Deadline, w.conf.Reclaim)
	return w
}

// skewed returns a slip that clocks within their promise may have.
func (w *world) skewed() time.Duration {
	half := int64(w.conf.MaxClockSkew / 2)
	return time.Duration(w.rnd.Int64N(half) - half/2)
}

func (w *world) tell(format string, args ...any) {
	if w.story.out != nil {
		fmt.Fprintf(w.story.out, "%12.6f  %s\n", time.Since(w.begin).Seconds(), fmt.Sprintf(format, args...))
	}
}

// fail notes the first breach of the law.
func (w *world) fail(format string, args ...any) {
	if w.fault == nil {
		w.fault = fmt.Errorf(format, args...)
		w.tell("BREACH %v", w.fault)
	}
}

// run lets misfortune do its work, then mends the world and sees whether the
// fleet serves again.
func (w *world) run() {
	for _, m := range w.machines {
		time.Sleep(chance(w.rnd, time.Second))
		w.mu.Lock()
		m.start()
		w.mu.Unlock()
	}
	for w.still() && time.Since(w.begin) < w.span {
		time.Sleep(chance(w.rnd, w.pace))
		w.misfortune()
		w.mu.Lock()
		w.check()
		w.mu.Unlock()
	}
	time.Sleep(chance(w.rnd, time.Millisecond))
	w.mend()
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
	return w.fault == nil
}

// chance returns a time of up to about d, odd enough that no two things ever
// happen at once: their order would be chance that no seed repeats.
func chance(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(1 + r.Int64N(int64(d)))
}

func (w *world) one(n int) bool { return w.rnd.IntN(n) == 0 }

// misfortune does one bad thing.
func (w *world) misfortune() {
	w.mu.Lock()
	m := w.machines[w.rnd.IntN(len(w.machines))]
	l := m.life
	switch what := w.rnd.IntN(15); {
	case what == 0:
		l.steps = 1 + w.rnd.IntN(12)
		w.tell("%s will crash in %d steps", m.name, l.steps)
	case what == 1:
		w.crash(l)
		w.again(m)
	case what == 2:
		w.tell("%s stops cleanly", m.name)
		w.mu.Unlock()
		l.cancel()
		<-l.done
		w.mu.Lock()
		w.again(m)
	case what <= 4:
		l.pause, l.pauseFor = 1+w.rnd.IntN(12), chance(w.rnd, []time.Duration{time.Second, 10 * time.Second, 90 * time.Second}[w.rnd.IntN(3)])
		w.tell("%s will stand still for %v in %d steps", m.name, l.pauseFor, l.pause)
	case what == 5 && !w.lossy:
		w.down = !w.down
		w.tell("registry down: %t", w.down)
	case what == 6 && !w.lossy:
		m.cut = !m.cut
		w.tell("%s cut off: %t", m.name, m.cut)
	case what == 7:
		m.broken = w.rnd.IntN(3)
		w.tell("%s disk: %d", m.name, m.broken)
	case what == 8:
		for n := range w.conf.Layout.Workers() { // early expiry; late is the rule here
			if w.one(2) {
				delete(w.reg.leases, n)
			}
		}
		w.tell("leases expire")
	case what == 9:
		w.stale = !w.stale
		w.tell("stale reads: %t", w.stale)
	case what == 10:
		w.move()
	case w.lossy && what <= 12:
		w.lose()
	case !w.lossy && what <= 13:
		m.set()
	case !w.lossy:
		w.slip = time.Duration(w.rnd.IntN(20)-10) * time.Second
		w.tell("the registry's clock is %v off", w.slip)
	}
	w.mu.Unlock()
}

// set sets the clock of a machine.
func (m *machine) set() {
	w := m.world
	m.slip = w.skewed()
	m.drift, m.driftT = 0, time.Now()
	switch w.rnd.IntN(8) {
	case 4, 5, 6:
		m.slip = time.Duration(w.rnd.Int64N(2*int64(w.conf.MaxClockSkew))) - w.conf.MaxClockSkew
	case 0:
		m.slip += time.Duration(w.rnd.Int64N(int64(4*time.Hour))) - 2*time.Hour
	case 1:
		m.slip += time.Duration(w.rnd.Int64N(int64(60*time.Second))) - 30*time.Second
	case 2:
		m.slip += time.Duration(w.rnd.IntN(3)-1) * 5 * 365 * 24 * time.Hour
	case 3:
		m.drift = w.rnd.Float64()*0.2 - 0.1
	}
	w.tell("%s clock is %v off, drifts %.3f", m.name, m.slip, m.drift)
}

// clock returns the time on the machine's clock, Unix ms.
func (m *machine) clock() int64 {
	drift := time.Duration(m.drift * float64(time.Since(m.driftT)))
	return time.Now().Add(m.slip + drift).UnixMilli()
}

// lose loses the registry's state. It is made again, at any moment, or restored
// from a backup: then what docs/design.md asks of operators is kept. It was away
// for twice the skew, and for two heartbeats after it nobody is stopped.
func (w *world) lose() {
	for _, m := range w.machines { // nobody stands still: who cannot be asked may issue
		m.life.pause, m.life.stoppedTo = 0, time.Time{}
	}
	revision := w.reg.revision
	if w.one(2) || len(w.backups) == 0 {
		w.reg = registryState{revision: w.newRevision()}
		w.reg.records, w.reg.leases = map[int]workerid.Record{}, map[int]workerid.Heartbeat{}
		w.past, w.backups = nil, nil
		w.tell("registry made again")
		if l := w.machines[w.rnd.IntN(len(w.machines))].life; w.one(2) {
			w.crash(l)
			w.again(l.machine)
		}
		return
	}
	quiet := func(d time.Duration) {
		for _, m := range w.machines {
			m.life.steps = 0
		}
		w.calm = true
		w.mu.Unlock()
		time.Sleep(d + chance(w.rnd, time.Second))
		w.mu.Lock()
	}
	w.down = true
	w.tell("registry down, to be restored")
	quiet(2*w.conf.MaxClockSkew + 3*time.Second)
	w.reg = w.backups[w.rnd.IntN(len(w.backups))]
	w.reg.leases = map[int]workerid.Heartbeat{}
	w.past, w.backups, w.down, w.stale = nil, nil, false, false
	w.tell("registry restored from revision %d, was at %d", w.reg.revision, revision)
	quiet(2*w.conf.Heartbeat + 5*time.Second)
	w.calm = false
}

// newRevision is where a registry that is made again begins: at the time in µs.
func (w *world) newRevision() uint64 {
	return w.reg.revision + 1_000_000 //mutant:first-revision
}

// move makes the registry again with what it held: all revisions are new.
func (w *world) move() {
	w.past, w.backups, w.reg.revision, w.reg.records = nil, nil, w.newRevision(), maps.Clone(w.reg.records)
	for n := range w.conf.Layout.Workers() {
		if r, ok := w.reg.records[n]; ok {
			w.reg.revision++
			r.Revision = w.reg.revision
			w.reg.records[n] = r
		}
	}
	w.tell("registry moved to revision %d", w.reg.revision)
}

// again starts a new life on the machine after a while.
func (w *world) again(m *machine) {
	if w.one(6) {
		m.disk = nil
		w.tell("%s lost its disk", m.name)
	}
	rest := chance(w.rnd, []time.Duration{time.Millisecond, 8 * time.Second}[w.rnd.IntN(2)])
	w.mu.Unlock()
	time.Sleep(rest)
	w.mu.Lock()
	m.start()
}

func (w *world) crash(l *process) {
	if !l.dead {
		w.tell("%s crashes", l.name)
		l.dead = true
		for _, all := range w.generators {
			for _, h := range all {
				h.crashed = h.crashed || h.life == l && !h.closed()
			}
		}
	}
	l.cancel()
}

// start begins a life.
func (m *machine) start() {
	w := m.world
	if m.life != nil {
		m.life.dead = true // as a whole, writes that hang included
	}
	next := func() *rand.Rand { return rand.New(rand.NewPCG(m.rnd.Uint64(), 1)) }
	l := &process{machine: m, rnd: next(), ofDisk: next(), ofWork: next(), done: make(chan struct{})}
	m.life = l
	w.story.lives++
	cfg := w.conf
	cfg.Instance, cfg.Registry, cfg.Now, cfg.Use = m.name, l, l.now, l.use
	cfg.Alarm = func(kind workerid.Alarm, message string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.tell("%s alarms %s: %s", m.name, kind, message)
	}
	l.keeper = workerid.New(cfg)
	write := l.write
	if m.bare {
		write = nil
	}
	l.keeper.Simulate(next(), 700*time.Millisecond, m.disk, write)
	w.tell("%s starts, state file of %d bytes", m.name, len(m.disk))
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	w.wg.Go(func() {
		defer close(l.done)
		err := l.keeper.Run(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		if !l.dead {
			w.tell("%s ended: %v", m.name, err)
		}
	})
	w.wg.Go(l.work)
}

// step is where anything may happen to a process.
func (l *process) step() {
	w := l.world
	w.mu.Lock()
	if l.steps > 0 && !l.dead {
		if l.steps--; l.steps == 0 {
			w.crash(l)
			rest := chance(l.machine.rnd, 3*time.Second)
			w.wg.Go(func() {
				time.Sleep(rest)
				w.mu.Lock()
				if l.life == l {
					l.start()
				}
				w.mu.Unlock()
			})
		}
	}
	if l.pause > 0 {
		if l.pause--; l.pause == 0 {
			l.stoppedTo = time.Now().Add(l.pauseFor)
			w.tell("%s stands still until %v", l.name, l.stoppedTo.Sub(w.begin))
		}
	}
	for !l.dead && time.Now().Before(l.stoppedTo) {
		d := min(time.Until(l.stoppedTo), time.Second) + chance(l.rnd, time.Millisecond)
		w.mu.Unlock()
		time.Sleep(d)
		w.mu.Lock()
	}
	dead := l.dead
	w.mu.Unlock()
	if dead {
		runtime.Goexit()
	}
}

// now reads the machine's clock. What is done with the reading may be done
// much later.
func (l *process) now() int64 {
	l.world.mu.Lock()
	ms := l.clock()
	l.world.mu.Unlock()
	l.step()
	return ms
}

// use is told which generator is in use.
func (l *process) use(g *snowflake.Generator) {
	w := l.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.dead || g == nil {
		l.gen = nil
		return
	}
	for _, h := range w.generators[g.Worker()] {
		if h.Generator == g {
			l.gen = h
			return
		}
	}
	l.gen = &held{Generator: g, life: l}
	w.generators[g.Worker()] = append(w.generators[g.Worker()], l.gen)
	w.tell("%s has number %d from %d to %d", l.name, g.Worker(), w.rel(g.From()), w.rel(g.Until()))
	w.check()
}

// rel shows a time as ms since the begin.
func (w *world) rel(ms int64) int64 { return ms - w.begin.UnixMilli() }

// check checks the law as it stands: of two generators of one number neither
// can issue, or has issued, what the other can. Where the registry loses its
// state the earlier one may hold what it does not use any more.
func (w *world) check() {
	for number, all := range w.generators {
		for i, b := range all {
			for _, a := range all[:i] {
				if w.lossy && (!a.issued || !a.crashed && !a.closed()) {
					continue
				}
				end := a.end()
				if w.lossy {
					end = min(a.Close(), a.Until())
				}
				if b.From() < end && a.From() < b.end() {
					w.fail("number %d: %s holds [%d, %d) and %s holds [%d, %d)", number,
						a.life.name, w.rel(a.From()), w.rel(end), b.life.name, w.rel(b.From()), w.rel(b.end()))
				}
			}
		}
	}
}

// work issues IDs.
func (l *process) work() {
	w := l.world
	for {
		time.Sleep(chance(l.ofWork, 900*time.Millisecond))
		w.mu.Lock()
		g, dead, calm := l.gen, l.dead, w.calm
		w.mu.Unlock()
		if dead {
			return
		}
		if g == nil {
			select {
			case <-l.done:
				return
			default:
				continue
			}
		}
		now := l.now()
		if !w.lossy && !calm && l.ofWork.IntN(5) == 0 {
			// Any reading may come: at the very ends of the window too.
			now = []int64{g.Until(), g.Until() - w.conf.Layout.Unit, g.From()}[l.ofWork.IntN(3)]
			if l.ofWork.IntN(3) == 0 {
				now += l.ofWork.Int64N(4*w.conf.Layout.Unit) - 2*w.conf.Layout.Unit
			}
		}
		runs, err := g.NextAt(now, 1+l.ofWork.IntN(3<<w.conf.Layout.Sequence))
		if err == nil {
			l.note(g, runs.Of(l.ofWork.Int64N(1+w.conf.Layout.MaxBusiness())))
		}
	}
}

// note notes what was issued, and by which generator.
func (l *process) note(g *held, runs snowflake.Runs) {
	w := l.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story.ids += uint64(runs.Len())
	g.issued = true
	for first, last := range runs.All() {
		p, err := w.conf.Layout.Decode(first)
		if err != nil {
			w.fail("%v", err)
			return
		}
		at := position{p.Worker, p.Tick}
		c := w.issued[at]
		if c == nil {
			c = &cell{by: g}
			w.issued[at] = c
		}
		sequences := (uint64(1)<<(last-first+1) - 1) << p.Sequence
		if c.by != g {
			w.fail("tick %d of number %d is issued by %s and by %s", p.Tick, p.Worker, c.by.life.name, l.name)
		} else if c.sequences&sequences != 0 {
			w.fail("%d IDs of tick %d of number %d twice, by %s", bits.OnesCount64(c.sequences&sequences), p.Tick, p.Worker, l.name)
		}
		c.sequences |= sequences
	}
}

// mend ends all misfortune: clocks are right, the registry answers, disks
// work, and whoever is dead is started.
func (w *world) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell("all is mended")
	w.down, w.stale, w.slip, w.calm = false, false, 0, true
	for _, m := range w.machines {
		m.slip, m.drift, m.cut, m.broken = w.skewed(), 0, false, 0
		l := m.life
		l.steps, l.pause, l.stoppedTo = 0, 0, time.Time{}
		select {
		case <-l.done:
			m.start()
		default:
			if l.dead {
				m.start()
			}
		}
	}
}

// serves waits until all machines serve, or as many as there can be numbers.
func (w *world) serves() {
	need := min(len(w.machines), w.conf.Layout.Workers())
	// What a wrong clock issued or blocked lasts for a horizon, and a lease for
	// its time; a number lost and one without a record cost the skew each; then
	// there is a heartbeat, a pause of choosing, and what a disk hung.
	bound := w.conf.Horizon + w.ttl + 2*w.conf.MaxClockSkew + 25*time.Second
	for end := time.Now().Add(bound); w.still(); time.Sleep(500*time.Millisecond + chance(w.rnd, time.Millisecond)) {
		have := 0
		w.mu.Lock()
		for _, m := range w.machines {
			if g := m.life.gen; g != nil && g.CheckAt(m.clock()) == nil {
				have++
			}
		}
		if have >= need {
			w.tell("%d serve", have)
			w.mu.Unlock()
			return
		}
		if time.Now().After(end) {
			why := ""
			for _, m := range w.machines {
				s := m.life.keeper.Status()
				why += fmt.Sprintf("\n%s: held %t, number %d, until %d, trouble %v", m.name, s.Held, s.Number, w.rel(s.Until), s.Trouble)
				if g := m.life.gen; g != nil {
					why += fmt.Sprintf(", check %v", g.CheckAt(m.clock()))
				}
			}
			w.fail("%v after all was mended %d of %d serve%s", bound, have, need, why)
		}
		w.mu.Unlock()
	}
}

// write replaces the state file.
func (l *process) write(data []byte) error {
	l.step()
	w := l.world
	w.mu.Lock()
	broken, early := l.broken, l.ofDisk.IntN(2) == 0
	wait, after := chance(l.ofDisk, 5*time.Millisecond), chance(l.ofDisk, time.Millisecond)
	if broken == 2 {
		wait = chance(l.ofDisk, 20*time.Second)
	}
	w.mu.Unlock()
	time.Sleep(wait)
	l.step()
	if broken == 1 && early {
		return errors.New("no space left on device")
	}
	w.mu.Lock()
	l.disk = data
	w.mu.Unlock()
	time.Sleep(after)
	l.step()
	if broken == 1 {
		return errors.New("input/output error")
	}
	return nil
}

// callTimeout is that of the keeper.
const callTimeout = time.Second

var errAway = errors.New("no connection")

// call makes a call to the registry: op runs when it arrives there, if ever.
func (l *process) call(ctx context.Context, op func()) error {
	l.step()
	w := l.world
	lost, unheard, phantom := false, false, false
	w.mu.Lock()
	there, back, fail := chance(l.rnd, 8*time.Millisecond), chance(l.rnd, 8*time.Millisecond), chance(l.rnd, 8*time.Millisecond)
	away := w.down || l.cut
	atOnce := away && l.rnd.IntN(2) == 0
	if !w.calm {
		switch l.rnd.IntN(w.rare) {
		case 0:
			lost = true
		case 1, 2:
			unheard = true
		case 3:
			there = chance(l.rnd, 20*time.Second)
		case 4:
			back = chance(l.rnd, 2*time.Second)
		case 5, 6, 7:
			phantom = true
		}
	}
	w.mu.Unlock()
	if atOnce {
		time.Sleep(fail)
		l.step()
		return errAway
	}
	done := make(chan struct{})
	if !away && !lost {
		w.wg.Go(func() {
			time.Sleep(there)
			w.mu.Lock()
			heard := !w.down && !unheard && !phantom
			if !w.down {
				before := w.reg
				op()
				switch changed := w.reg.revision != before.revision; {
				case changed && !phantom:
					w.backups = append(w.backups, w.reg)
				case changed:
					// Stale reads see it, but it is rolled back. Its revision is not used
					// again: where it could be, no compare-and-set holds.
					before.revision = w.reg.revision
					w.past, w.reg = append(w.past, w.reg), before
				}
			}
			w.mu.Unlock()
			if heard {
				time.Sleep(back)
				close(done)
			}
		})
	}
	defer l.step()
	select {
	case <-done:
		w.mu.Lock()
		l.reached = time.Now()
		w.mu.Unlock()
		return nil
	case <-ctx.Done():
		time.Sleep(fail) // not in the very moment of another timer
		return ctx.Err()
	}
}

// read returns the registry's state as one call sees it.
func (l *process) read() registryState {
	w := l.world
	if n := len(w.past); w.stale && n > 0 && l.rnd.IntN(2) == 0 {
		return w.past[max(0, n-1-l.rnd.IntN(6))]
	}
	return w.reg
}

// change replaces the registry's records or leases.
func (w *world) change(f func(r *registryState)) {
	w.past = append(w.past, w.reg)
	if len(w.past) > 40 {
		w.past = w.past[1:]
	}
	w.reg.records = maps.Clone(w.reg.records)
	w.reg.revision++
	f(&w.reg)
}

// ask makes a call that reads something. What arrives too late is nobody's.
func ask[T any](l *process, ctx context.Context, read func() T) (T, error) {
	var got, none T
	if err := l.call(ctx, func() { got = read() }); err != nil {
		return none, err
	}
	return got, nil
}

// Deployment implements [workerid.Registry].
func (l *process) Deployment(ctx context.Context, d workerid.Deployment) (workerid.Deployment, error) {
	return ask(l, ctx, func() workerid.Deployment {
		if l.world.reg.deployment.ID == "" {
			l.world.change(func(r *registryState) { r.deployment = d })
		}
		return l.world.reg.deployment
	})
}

// Records implements [workerid.Registry].
func (l *process) Records(ctx context.Context) (map[int]workerid.Record, error) {
	return ask(l, ctx, func() map[int]workerid.Record { return l.read().records })
}

// Record implements [workerid.Registry].
func (l *process) Record(ctx context.Context, n int) (workerid.Record, error) {
	r, err := ask(l, ctx, func() workerid.Record { return l.read().records[n] })
	if err == nil && r.Token == "" {
		err = workerid.ErrNoRecord
	}
	return r, err
}

// Write implements [workerid.Registry].
func (l *process) Write(ctx context.Context, n int, r workerid.Record) (uint64, error) {
	revision, err := ask(l, ctx, func() uint64 {
		if l.world.reg.records[n].Revision != r.Revision {
			return 0
		}
		l.world.change(func(s *registryState) {
			r.Revision = s.revision
			s.records[n] = r
		})
		l.world.tell("%s writes record %d: until %d, revision %d", r.Instance, n, l.world.rel(r.Until), r.Revision)
		return r.Revision
	})
	if err == nil && revision == 0 {
		err = workerid.ErrConflict
	}
	return revision, err
}

// Time implements [workerid.Registry].
func (l *process) Time(ctx context.Context) (int64, error) {
	return ask(l, ctx, l.world.time)
}

func (w *world) time() int64 { return time.Now().Add(w.slip).UnixMilli() }

// Report implements [workerid.Registry].
func (l *process) Report(ctx context.Context, n int, lease workerid.Heartbeat) error {
	return l.call(ctx, func() {
		lease.At = l.world.time()
		l.world.reg.leases[n] = lease
	})
}

// Heartbeats implements [workerid.Registry].
func (l *process) Heartbeats(ctx context.Context) (map[int]workerid.Heartbeat, error) {
	return ask(l, ctx, func() map[int]workerid.Heartbeat {
		all := maps.Clone(l.world.reg.leases)
		maps.DeleteFunc(all, func(_ int, lease workerid.Heartbeat) bool {
			return l.world.time()-lease.At > l.world.ttl.Milliseconds()
		})
		return all
	})
}

// Leave implements [workerid.Registry].
func (l *process) Leave(ctx context.Context, n int) error {
	return l.call(ctx, func() { delete(l.world.reg.leases, n) })
}

// Ask implements [workerid.Registry].
func (l *process) Ask(ctx context.Context, n int) (who workerid.Who, err error) {
	l.step()
	w := l.world
	w.mu.Lock()
	wait := chance(l.rnd, 5*time.Millisecond)
	w.mu.Unlock()
	time.Sleep(wait)
	w.mu.Lock()
	var holder *process
	for _, m := range w.machines {
		if m.life == nil || m.life.dead {
			continue
		}
		if s := m.life.keeper.Status(); s.Held && s.Number == n {
			holder = m.life
		}
	}
	mute := holder != nil && time.Now().Before(holder.stoppedTo)
	lie := !w.lossy && !w.calm && l.rnd.IntN(3) == 0
	alone := w.lossy && time.Since(l.reached) > callTimeout // who reaches nothing may not start either
	w.mu.Unlock()
	if alone {
		l.step()
		return workerid.Who{}, errAway
	}
	if mute && !lie {
		<-ctx.Done()
		time.Sleep(wait)
		l.step()
		return workerid.Who{}, ctx.Err()
	}
	l.step()
	if holder == nil || lie {
		return workerid.Who{}, workerid.ErrNoWorker
	}
	return workerid.Who{Instance: holder.name, Process: holder.name + fmt.Sprint(n)}, nil
}
