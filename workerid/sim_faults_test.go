package workerid_test

import (
	"maps"
	"time"

	"github.com/natsid/natsid/workerid"
)

// inject injects one fault.
func (w *world) inject() {
	w.mu.Lock()
	m := w.machines[w.rnd.IntN(len(w.machines))]
	l := m.life
	switch what := w.rnd.IntN(15); {
	case what == 0:
		l.steps = 1 + w.rnd.IntN(12)
		w.log("%s will crash in %d steps", m.name, l.steps)
	case what == 1:
		w.crash(l)
		w.again(m)
	case what == 2:
		w.log("%s stops cleanly", m.name)
		w.mu.Unlock()
		l.cancel()
		<-l.done
		w.mu.Lock()
		w.again(m)
	case what <= 4:
		l.pause = 1 + w.rnd.IntN(12)
		l.pauseFor = chance(w.rnd, []time.Duration{time.Second, 10 * time.Second, 90 * time.Second}[w.rnd.IntN(3)])
		w.log("%s will stand still for %v in %d steps", m.name, l.pauseFor, l.pause)
	case what == 5 && !w.lossy:
		w.down = !w.down
		w.log("registry down: %t", w.down)
	case what == 6 && !w.lossy:
		m.cut = !m.cut
		w.log("%s cut off: %t", m.name, m.cut)
	case what == 7:
		m.broken = w.rnd.IntN(3)
		w.log("%s disk: %d", m.name, m.broken)
	case what == 8:
		for n := range w.conf.Layout.Workers() { // early expiry; late is the rule here
			if w.one(2) {
				delete(w.reg.heartbeats, n)
			}
		}
		w.log("heartbeats expire")
	case what == 9:
		w.stale = !w.stale
		w.log("stale reads: %t", w.stale)
	case what == 10:
		w.move()
	case w.lossy && what <= 12:
		w.lose()
	case !w.lossy && what <= 13:
		m.set()
	case !w.lossy:
		w.slip = time.Duration(w.rnd.IntN(20)-10) * time.Second
		w.log("the registry's clock is %v off", w.slip)
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
	w.log("%s clock is %v off, drifts %.3f", m.name, m.slip, m.drift)
}

// clock returns the time on the machine's clock, Unix ms.
func (m *machine) clock() int64 {
	drift := time.Duration(m.drift * float64(time.Since(m.driftT)))
	return time.Now().Add(m.slip + drift).UnixMilli()
}

// lose loses the registry's state. It is created again, at any moment, or
// restored from a backup in the way that docs/uniqueness.md asks of operators: it
// is down for twice the skew, and no worker is stopped for two heartbeats after.
func (w *world) lose() {
	for _, m := range w.machines { // none stands still: one that cannot be asked may issue
		m.life.pause, m.life.stoppedTo = 0, time.Time{}
	}
	revision := w.reg.revision
	if w.one(2) || len(w.backups) == 0 {
		w.reg = registryState{revision: w.newRevision()}
		w.reg.records, w.reg.heartbeats = map[int]workerid.Record{}, map[int]workerid.Heartbeat{}
		w.past, w.backups = nil, nil
		w.log("registry created again")
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
		w.healthy = true
		w.mu.Unlock()
		time.Sleep(d + chance(w.rnd, time.Second))
		w.mu.Lock()
	}
	w.down = true
	w.log("registry down, to be restored")
	quiet(2*w.conf.MaxClockSkew + 3*time.Second)
	w.reg = w.backups[w.rnd.IntN(len(w.backups))]
	w.reg.heartbeats = map[int]workerid.Heartbeat{}
	w.past, w.backups, w.down, w.stale = nil, nil, false, false
	w.log("registry restored from revision %d, was at %d", w.reg.revision, revision)
	quiet(2*w.conf.Heartbeat + 5*time.Second)
	w.healthy = false
}

// newRevision is where a registry that is created again begins: at the time in µs.
func (w *world) newRevision() uint64 {
	return w.reg.revision + 1_000_000 //mutant:first-revision
}

// move creates the registry again with what it held: all revisions are new.
func (w *world) move() {
	w.past, w.backups, w.reg.revision, w.reg.records = nil, nil, w.newRevision(), maps.Clone(w.reg.records)
	for n := range w.conf.Layout.Workers() {
		if r, ok := w.reg.records[n]; ok {
			w.reg.revision++
			r.Revision = w.reg.revision
			w.reg.records[n] = r
		}
	}
	w.log("registry moved to revision %d", w.reg.revision)
}

// again starts a new life on the machine after a while.
func (w *world) again(m *machine) {
	if w.one(6) {
		m.disk = nil
		w.log("%s lost its disk", m.name)
	}
	rest := chance(w.rnd, []time.Duration{time.Millisecond, 8 * time.Second}[w.rnd.IntN(2)])
	w.mu.Unlock()
	time.Sleep(rest)
	w.mu.Lock()
	m.start()
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
