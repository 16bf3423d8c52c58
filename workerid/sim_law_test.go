package workerid_test

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
)

// check checks the law as it stands: of two generators of one number neither can issue, or has issued, a time that the
// other can. Where the registry loses its state the earlier one may hold a time that it no longer uses.
func (w *world) check() {
	for _, of := range w.kinds {
		all := w.generators[of]
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
					w.fail("number %d: %s holds [%d, %d) and %s holds [%d, %d)", of.number,
						a.life.name, w.rel(a.From()), w.rel(end), b.life.name, w.rel(b.From()), w.rel(b.end()))
				}
			}
		}
	}
}

// note notes the issued IDs and their generator.
func (l *process) note(g *held, runs snowflake.Runs) {
	w := l.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story.IDs += uint64(runs.Len())
	g.issued = true
	for first, last := range runs.All() {
		p, err := g.Layout().Decode(first)
		if err != nil {
			w.fail("%v", err)
			return
		}
		at := position{kind{l.layout, p.Worker}, p.Tick}
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
		l.noteRaw(int64(first), int64(last))
	}
}

// noteRaw notes IDs as numbers: those of different layouts may be equal.
func (l *process) noteRaw(first, last int64) {
	w := l.world
	if len(w.layouts) == 1 {
		return
	}
	for id := first; id <= last; id++ {
		bit := uint64(1) << (id % 64)
		if w.raw[id/64]&bit != 0 {
			w.fail("ID %d twice, the second time by %s with layout %s", id, l.name, w.layouts[l.layout])
		}
		w.raw[id/64] |= bit
	}
}

// repair ends all faults: clocks are right, the registry answers, disks work, the
// layout of workers is the registry's, and dead workers are started.
func (w *world) repair() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log("all is repaired")
	w.down, w.stale, w.slip, w.healthy, w.closing = [buckets]bool{}, false, 0, true, true
	for _, m := range w.machines {
		m.slip, m.drift, m.cut, m.broken = w.skewed(), 0, false, 0
		l := m.life
		l.steps, l.pause, l.stoppedTo = 0, 0, time.Time{}
	}
	w.agree()
	if w.reg.deployment.ID == "" && w.mixed { // programs wait for the start of a worker, as their error says
		w.crash(w.machines[0].life)
	}
	for _, m := range w.machines {
		select {
		case <-m.life.done:
			m.start()
		default:
			if m.life.dead {
				m.start()
			}
		}
	}
}

// serves waits until all machines serve, or as many as there can be numbers.
func (w *world) serves() {
	need := w.served()
	// What a wrong clock issued or blocked lasts for a horizon, and a heartbeat for its TTL; a lost number and one
	// without a record cost the skew each; add a heartbeat, two pauses of the search, and a disk that hung.
	tick := time.Duration(w.conf.Layout.Unit) * time.Millisecond
	bound := w.conf.Horizon + w.ttl + 2*w.conf.MaxClockSkew + 35*time.Second + 8*tick
	if w.bystander { // each number that is free costs the silence, and what is new to its worker a wait
		bound += 15 * time.Second
	}
	var ahead time.Duration
	for _, l := range w.layouts { // no deployment is made before its epoch
		ahead = max(ahead, time.Until(time.UnixMilli(l.Epoch)))
	}
	bound += ahead
	for end := time.Now().Add(bound); w.still(); time.Sleep(time.Second/2 + chance(w.rnd, time.Millisecond)) {
		w.mu.Lock()
		have := 0
		for _, m := range w.machines {
			if m.serves() {
				have++
			}
		}
		if have >= need {
			w.log("%d serve", have)
			w.mu.Unlock()
			return
		}
		if time.Now().After(end) {
			w.fail("%v after all was repaired %d of %d serve%s", bound, have, need, w.whyNot())
		}
		w.mu.Unlock()
	}
}

// back kills a worker that serves, starts it again on its data, and checks how soon
// its window begins: it issues a tick ahead of its clock, so within a tick and 3 s.
func (w *world) back() {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.machines[w.rnd.IntN(len(w.machines))]
	st, ok := workerid.ReadState(m.disk)
	killed, unit := m.clock(), w.conf.Layout.Unit
	// A restored registry has an older record; a disk that failed may not be used yet;
	// a clock that was far off has left traces.
	held := m.life.keeper.Status()
	r := w.reg.records[held.Number]
	same := ok && st.Until == held.Until && st.Token == r.Token && st.Until <= r.Until
	right := st.Fence <= killed+3000+unit && st.Until > killed+20_000+4*unit && m.reported() <= killed
	if m.bare || !m.serves() || !same || !right {
		return
	}
	w.log("%s is killed and started again", m.name)
	w.crash(m.life)
	m.start()
	l := m.life
	for end := time.Now().Add(10 * time.Second); l.gen == nil && time.Now().Before(end); {
		w.mu.Unlock()
		time.Sleep(100*time.Millisecond + chance(w.rnd, time.Millisecond))
		w.mu.Lock()
	}
	if l.gen == nil {
		w.fail("10 s after it was killed and started again %s has no number%s", m.name, w.whyNot())
		return
	}
	layout := l.gen.Layout()
	if begins := layout.FirstMs(layout.TickFrom(l.gen.From())) - unit; begins > killed+3000+unit {
		w.fail("%s serves %d ms after it was killed, ticks have %d ms", m.name, begins-killed, unit)
	}
}

// reported returns the latest time that the machine's workers wrote anywhere.
func (m *machine) reported() (latest int64) {
	for n, r := range m.world.reg.records {
		if r.Instance == m.name {
			latest = max(latest, r.Reported)
		}
		if h := m.world.reg.heartbeats[n]; h.Instance == m.name {
			latest = max(latest, h.Time)
		}
	}
	return latest
}

// served returns how many workers can serve at once: at each site as many as it has numbers.
func (w *world) served() (n int) {
	l := w.layouts[w.machines[0].layout]
	_, numbers := l.Numbers(0)
	if w.mixed {
		numbers /= 2
	}
	bySite := make(map[string]int)
	for _, m := range w.machines {
		of := fmt.Sprint(m.site, m.program != "")
		if bySite[of]++; bySite[of] <= numbers {
			n++
		}
	}
	return n
}

// serves reports whether the machine's worker would issue an ID if the time field has room for it.
func (m *machine) serves() bool {
	g := m.life.gen
	if g == nil {
		return false
	}
	err := g.CheckAt(m.clock())
	if b, ok := errors.AsType[*snowflake.BehindError](err); ok {
		return b.By.Milliseconds() <= g.Layout().Unit // it has issued all of its tick
	}
	return err == nil || errors.Is(err, snowflake.ErrEpoch) || errors.Is(err, snowflake.ErrTimeEnds)
}

func (w *world) whyNot() (why string) {
	for _, m := range w.machines {
		s := m.life.keeper.Status()
		why += fmt.Sprintf("\n%s: held %t, number %d, until %d, trouble %v",
			m.name, s.Held, s.Number, w.rel(s.Until), s.Trouble)
		if g := m.life.gen; g != nil {
			why += fmt.Sprintf(", check %v", g.CheckAt(m.clock()))
		}
	}
	return why
}
