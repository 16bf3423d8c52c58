package workerid_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
)

// A machine is where lives of one worker follow one another.
type machine struct {
	world   *world
	name    string
	rnd     *rand.Rand
	site    int
	program string // as in the keeper's settings; "" for a worker
	layout  int    // of world.layouts

	// Under world.mu.
	life   *process
	disk   []byte        // the state file
	saved  []byte        // a backup of it
	folder int           // the directory it is in
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
	// Random choices of the keeper, of its disk, of its work and of its answers: separate, since they run concurrently.
	rnd, ofDisk, ofWork, ofAnswer *rand.Rand

	keeper *workerid.Keeper
	cancel context.CancelFunc
	done   chan struct{}

	// Under world.mu.
	dead      bool
	clean     bool // it has stopped cleanly
	steps     int  // steps until it crashes, if over 0
	pause     int  // steps until it is stopped for pauseFor, if over 0
	pauseFor  time.Duration
	stoppedTo time.Time          // it stands still until then
	reached   [buckets]time.Time // when it last had a reply from a bucket
	answers   time.Time          // when it begins to answer for its number
	usable    time.Time          // when the first request can come
	gen       *held
}

// start begins a life.
func (m *machine) start() {
	w := m.world
	if m.life != nil {
		m.life.dead = true // as a whole, writes that hang included
	}
	next := func() *rand.Rand { return rand.New(rand.NewPCG(m.rnd.Uint64(), 1)) }
	l := &process{
		machine: m, rnd: next(), ofDisk: next(), ofWork: next(), ofAnswer: next(), done: make(chan struct{}),
	}
	m.life = l
	w.story.Lives++
	cfg := w.conf
	cfg.Layout = w.layouts[m.layout]
	if cfg.Site = m.site; w.mixed {
		cfg.Program = m.program
	} else {
		numbers := workerid.NumbersOf(cfg.Layout, m.site)
		cfg.Numbers = &numbers
	}
	cfg.Instance, cfg.Registry, cfg.Now, cfg.Use, cfg.Log = m.name, l, l.now, l.use, slog.New(acquisitions{l})
	cfg.MayFound = l.mayFound
	cfg.Alarm = func(kind workerid.Alarm, message string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.log("%s alarms %s: %s", m.name, kind, message)
	}
	l.keeper = workerid.New(cfg)
	write := l.write
	if m.bare {
		write = nil
	}
	l.keeper.Simulate(next(), 700*time.Millisecond, fmt.Sprint(m.name, "/", m.folder), m.disk, write)
	w.log("%s starts, state file of %d bytes", m.name, len(m.disk))
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	w.wg.Go(func() {
		defer close(l.done)
		l.ended(l.keeper.Run(ctx))
	})
	w.wg.Go(l.work)
}

// ended notes how a life ended. What was refused is started again.
func (l *process) ended(err error) {
	w := l.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.dead {
		return
	}
	l.clean = err == nil
	w.log("%s ended: %v", l.name, err)
	if errors.Is(err, workerid.ErrDeployment) {
		l.startAgain(8 * time.Second)
	}
}

// startAgain begins the next life within d, if none else does.
func (l *process) startAgain(d time.Duration) {
	w, rest := l.world, chance(l.machine.rnd, d)
	w.wg.Go(func() {
		time.Sleep(rest)
		w.mu.Lock()
		defer w.mu.Unlock()
		if l.life == l && !w.closing {
			l.start()
		}
	})
}

// mayFound asks all workers that have a number. Those that stand still do not answer.
func (l *process) mayFound(context.Context) error {
	l.step(l.rnd)
	w := l.world
	w.mu.Lock()
	wait := chance(l.rnd, min(w.slow, 5*time.Millisecond))
	w.mu.Unlock()
	time.Sleep(wait)
	w.mu.Lock()
	var err error
	for _, m := range w.machines {
		o := m.life
		if o == nil || o.dead || time.Now().Before(o.stoppedTo) || time.Now().Before(o.answers) {
			continue
		}
		if o.layout != l.layout && o.keeper.Status().Held {
			err = fmt.Errorf("%s issues under another layout", m.name)
		}
	}
	if w.lossy && l.alone() {
		err = errAway
	}
	w.mu.Unlock()
	l.step(l.rnd)
	return err
}

// An acquisitions is the log of a keeper, of which one message matters: a worker begins to answer for its number some
// time after it has acquired it, on another connection.
type acquisitions struct{ life *process }

func (a acquisitions) Enabled(_ context.Context, level slog.Level) bool {
	return level == slog.LevelInfo
}

func (a acquisitions) Handle(_ context.Context, r slog.Record) error {
	if l := a.life; r.Message == "worker number acquired" {
		l.world.mu.Lock()
		defer l.world.mu.Unlock()
		l.answers = time.Now().Add(chance(l.ofAnswer, 50*time.Millisecond))
		if l.usable.IsZero() { // snowflakes are served once the worker answers for its first number
			l.usable = l.answers
		}
	}
	return nil
}

func (a acquisitions) WithAttrs([]slog.Attr) slog.Handler { return a }
func (a acquisitions) WithGroup(string) slog.Handler      { return a }

// step is where anything may happen to a process.
func (l *process) step(r *rand.Rand) {
	w := l.world
	w.mu.Lock()
	if l.steps > 0 && !l.dead {
		if l.steps--; l.steps == 0 {
			w.crash(l)
			l.startAgain(3 * time.Second)
		}
	}
	if l.pause > 0 {
		if l.pause--; l.pause == 0 {
			l.stoppedTo = time.Now().Add(l.pauseFor)
			w.log("%s stands still until %v", l.name, l.stoppedTo.Sub(w.begin))
		}
	}
	for !l.dead && time.Now().Before(l.stoppedTo) {
		d := min(time.Until(l.stoppedTo), time.Second) + chance(r, time.Millisecond)
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

// now reads the machine's clock for the keeper.
func (l *process) now() int64 { return l.readClock(l.rnd) }

// readClock reads the machine's clock. The reading may be used much later.
func (l *process) readClock(r *rand.Rand) int64 {
	l.world.mu.Lock()
	ms := l.clock()
	l.world.mu.Unlock()
	l.step(r)
	return ms
}

// use notes which generator is in use.
func (l *process) use(g *snowflake.Generator) {
	w := l.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.dead || g == nil {
		l.gen = nil
		return
	}
	of := kind{l.layout, g.Worker()}
	programs, err := workerid.Holders("").Of(w.layouts[l.layout], l.site)
	if isTheirs := programs.First <= of.number && of.number <= programs.Last; w.mixed &&
		(err != nil || isTheirs != (l.program != "")) {
		w.fail("%s has number %d, and programs have %s, %v", l.name, of.number, programs, err)
	}
	for _, h := range w.generators[of] {
		if h.Generator == g {
			l.gen = h
			return
		}
	}
	if len(w.generators[of]) == 0 {
		w.kinds = append(w.kinds, of)
	}
	l.gen = &held{Generator: g, life: l}
	w.generators[of] = append(w.generators[of], l.gen)
	w.log("%s has number %d from %d to %d", l.name, g.Worker(), w.rel(g.From()), w.rel(g.Until()))
	w.check()
}

// work issues IDs.
func (l *process) work() {
	w := l.world
	for {
		time.Sleep(chance(l.ofWork, 900*time.Millisecond))
		w.mu.Lock()
		g, dead, healthy := l.gen, l.dead, w.healthy
		if time.Now().Before(l.usable) {
			g = nil
		}
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
		if l.ofWork.IntN(30) == 0 { // only this request stands still
			time.Sleep(chance(l.ofWork, pick(l.ofWork, 100*time.Millisecond, 10*time.Second)))
		}
		now := l.readClock(l.ofWork)
		if !w.lossy && !healthy && l.ofWork.IntN(5) == 0 {
			now = l.odd(g)
		}
		runs, err := g.NextAt(now, 1+l.ofWork.IntN(3<<g.Layout().Sequence))
		if err == nil {
			l.note(g, runs.Of(l.ofWork.Int64N(1+g.Layout().MaxBusiness())))
		}
	}
}

// odd returns a reading at the very ends of the window of g: any may come.
func (l *process) odd(g *held) int64 {
	unit := g.Layout().Unit
	now := pick(l.ofWork, g.Until(), g.Until()-unit, g.From())
	if l.ofWork.IntN(3) == 0 {
		now += l.ofWork.Int64N(4*unit) - 2*unit
	}
	return now
}

// write replaces the state file.
func (l *process) write(data []byte) error {
	// Whoever wants the write may have given up already: not in that very moment.
	time.Sleep(chance(l.ofDisk, 100*time.Microsecond))
	l.step(l.ofDisk)
	w := l.world
	w.mu.Lock()
	broken, early := l.broken, l.ofDisk.IntN(2) == 0
	wait, after := chance(l.ofDisk, 5*time.Millisecond), chance(l.ofDisk, time.Millisecond)
	if broken == 2 {
		wait = chance(l.ofDisk, 20*time.Second)
	}
	w.mu.Unlock()
	time.Sleep(wait)
	l.step(l.ofDisk)
	if broken == 1 && early {
		return errors.New("no space left on device")
	}
	w.mu.Lock()
	l.disk = data
	w.mu.Unlock()
	time.Sleep(after)
	l.step(l.ofDisk)
	if broken == 1 {
		return errors.New("input/output error")
	}
	return nil
}
