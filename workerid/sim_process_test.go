package workerid_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
)

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
		w.log("%s alarms %s: %s", m.name, kind, message)
	}
	l.keeper = workerid.New(cfg)
	write := l.write
	if m.bare {
		write = nil
	}
	l.keeper.Simulate(next(), 700*time.Millisecond, m.disk, write)
	w.log("%s starts, state file of %d bytes", m.name, len(m.disk))
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	w.wg.Go(func() {
		defer close(l.done)
		err := l.keeper.Run(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		if !l.dead {
			w.log("%s ended: %v", m.name, err)
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
			w.log("%s stands still until %v", l.name, l.stoppedTo.Sub(w.begin))
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

// now reads the machine's clock. The reading may be used much later.
func (l *process) now() int64 {
	l.world.mu.Lock()
	ms := l.clock()
	l.world.mu.Unlock()
	l.step()
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
	for _, h := range w.generators[g.Worker()] {
		if h.Generator == g {
			l.gen = h
			return
		}
	}
	l.gen = &held{Generator: g, life: l}
	w.generators[g.Worker()] = append(w.generators[g.Worker()], l.gen)
	w.log("%s has number %d from %d to %d", l.name, g.Worker(), w.rel(g.From()), w.rel(g.Until()))
	w.check()
}

// rel shows a time as ms since the begin.
func (w *world) rel(ms int64) int64 { return ms - w.begin.UnixMilli() }

// check checks the law as it stands: of two generators of one number neither can
// issue, or has issued, what the other can. Where the registry loses its state
// the earlier one may hold what it no longer uses.
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
		g, dead, healthy := l.gen, l.dead, w.healthy
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
		if !w.lossy && !healthy && l.ofWork.IntN(5) == 0 {
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

// note notes the issued IDs and their generator.
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
			w.fail("%d IDs of tick %d of number %d twice, by %s",
				bits.OnesCount64(c.sequences&sequences), p.Tick, p.Worker, l.name)
		}
		c.sequences |= sequences
	}
}

// repair ends all faults: clocks are right, the registry answers, disks work, and
// dead workers are started.
func (w *world) repair() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("all is repaired")
	w.down, w.stale, w.slip, w.healthy = false, false, 0, true
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
	// What a wrong clock issued or blocked lasts for a horizon, and a heartbeat for
	// its TTL; a lost number and one without a record cost the skew each; add a
	// heartbeat, a pause of the search, and a disk that hung.
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
			w.log("%d serve", have)
			w.mu.Unlock()
			return
		}
		if time.Now().After(end) {
			why := ""
			for _, m := range w.machines {
				s := m.life.keeper.Status()
				why += fmt.Sprintf("\n%s: held %t, number %d, until %d, trouble %v",
					m.name, s.Held, s.Number, w.rel(s.Until), s.Trouble)
				if g := m.life.gen; g != nil {
					why += fmt.Sprintf(", check %v", g.CheckAt(m.clock()))
				}
			}
			w.fail("%v after all was repaired %d of %d serve%s", bound, have, need, why)
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
