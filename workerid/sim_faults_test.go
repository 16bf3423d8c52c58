package workerid_test

import (
	"time"
)

// inject injects one fault.
func (w *world) inject() {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.machines[w.rnd.IntN(len(w.machines))]
	switch what := w.rnd.IntN(16); {
	case what <= 4:
		w.strike(m, what)
	case what == 5:
		w.takeAway()
	case what == 6 && !w.lossy:
		m.cut = !m.cut
		w.log("%s cut off: %t", m.name, m.cut)
	case what == 7:
		m.broken = w.rnd.IntN(3)
		w.log("%s disk: %d", m.name, m.broken)
	case what == 8:
		w.expire()
	case what == 9:
		w.stale = !w.stale
		w.log("stale reads: %t", w.stale)
	case what == 10:
		w.move()
	case what == 15:
		w.overhear()
	case w.lossy && what <= 12:
		w.lose()
	case !w.lossy && what <= 13:
		m.set()
	case !w.lossy:
		w.slip = time.Duration(w.rnd.IntN(20)-10) * time.Second
		w.log("the registry's clock is %v off", w.slip)
	}
}

// overhear makes a bystander listen to all questions for holders, or ends that. Where the registry loses its state, a
// worker that stands still could not be told apart from none: it may issue, as docs/uniqueness.md says.
func (w *world) overhear() {
	if w.bystander = !w.bystander; w.bystander && w.lossy {
		w.awake()
	}
	w.log("somebody listens to all questions: %t", w.bystander)
}

// awake ends that workers stand still, or will.
func (w *world) awake() {
	for _, m := range w.machines {
		m.life.pause, m.life.stoppedTo = 0, time.Time{}
	}
}

// strike makes a worker crash, stop or stand still.
func (w *world) strike(m *machine, what int) {
	l := m.life
	switch what {
	case 0:
		l.steps = 1 + w.rnd.IntN(12)
		w.log("%s will crash in %d steps", m.name, l.steps)
	case 1:
		w.crash(l)
		w.again(m)
	case 2:
		w.stop(m)
		w.again(m)
	default:
		if w.lossy && w.bystander {
			return
		}
		l.pause = 1 + w.rnd.IntN(12)
		l.pauseFor = chance(w.rnd, pick(w.rnd, time.Second, 10*time.Second, 90*time.Second))
		w.log("%s will stand still for %v in %d steps", m.name, l.pauseFor, l.pause)
	}
}

// stop stops a worker cleanly and waits until it has.
func (w *world) stop(m *machine) {
	w.log("%s stops cleanly", m.name)
	l := m.life
	w.mu.Unlock()
	l.cancel()
	<-l.done
	w.mu.Lock()
}

// takeAway puts the registry, or one of its buckets, out of reach, or back.
func (w *world) takeAway() {
	of := bucket(w.rnd.IntN(int(buckets)))
	down := !w.down[of]
	w.down[of] = down
	if w.one(2) {
		w.down = [buckets]bool{down, down}
	}
	w.log("registry down: history %t, workers %t", w.down[history], w.down[workers])
}

// expire makes heartbeats expire early; late is the rule here.
func (w *world) expire() {
	for n := range w.conf.Layout.Workers() {
		if w.one(2) {
			delete(w.reg.heartbeats, n)
		}
	}
	w.log("heartbeats expire")
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
	w.log("%s clock is %v off, drifts %.3f", m.name, m.slip, m.drift)
}

// clock returns the time on the machine's clock, Unix ms.
func (m *machine) clock() int64 {
	drift := time.Duration(m.drift * float64(time.Since(m.driftT)))
	return time.Now().Add(m.slip + drift).UnixMilli()
}

// again starts a new life on the machine after a while.
func (w *world) again(m *machine) {
	w.spoil(m)
	rest := chance(w.rnd, pick(w.rnd, time.Millisecond, 8*time.Second))
	w.mu.Unlock()
	time.Sleep(rest)
	w.mu.Lock()
	m.start()
}

// spoil may change the state file of a machine that is at rest.
func (w *world) spoil(m *machine) {
	switch w.rnd.IntN(18) {
	case 0, 1, 2:
		m.disk = nil
		w.log("%s lost its disk", m.name)
	case 3:
		m.disk = m.disk[:w.rnd.IntN(len(m.disk)+1)]
		w.log("%s has a torn state file of %d bytes", m.name, len(m.disk))
	case 4:
		// It is another file, also where it is an old one of the same machine that comes back from another.
		m.disk, m.folder = w.machines[w.rnd.IntN(len(w.machines))].disk, m.folder+1
		w.log("%s has a copy of a state file", m.name)
	case 5: // restored from a backup, into a directory of its own
		m.disk, m.folder = m.saved, m.folder+1
		w.log("%s has an old state file", m.name)
	case 6:
		m.saved = m.disk
	}
}

func (w *world) crash(l *process) {
	if !l.dead {
		w.log("%s crashes", l.name)
		l.dead = true
		for _, all := range w.generators {
			for _, h := range all {
				h.crashed = h.crashed || h.life == l && !h.closed()
			}
		}
	}
	l.cancel()
}
