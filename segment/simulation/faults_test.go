package simulation_test

import (
	"maps"
	"strings"
	"time"

	"github.com/natsid/natsid/segment"
)

// disturb injects a fault, and more from now on.
func (w *world) disturb() {
	if w.healthy {
		return
	}
	w.after(w.chance(w.pace), w.disturb)
	m := pick(w.agenda, w.machines...)
	switch w.rnd.IntN(12) {
	case 0, 1:
		if w.conf.loss != setBack {
			m.crash()
		}
	case 2:
		if w.conf.loss != setBack {
			m.leave()
		}
	case 7:
		w.lose()
	case 3:
		w.toggle("JetStream away", &w.js.away, 5*time.Second)
	case 4:
		w.js.cut[m] = !w.js.cut[m]
		w.log("%s cut off from JetStream: %t", m.name, w.js.cut[m])
	case 5:
		w.toggle("stale reads", &w.js.stale, 10*time.Second)
	case 6:
		if m.life != nil && !m.life.isDead() {
			m.life.alloc.Refresh()
		}
	default:
		if w.conf.kind != marksAlone {
			w.disturbTable(m)
		}
	}
}

// toggle turns something on, and off again after up to d.
func (w *world) toggle(what string, on *bool, d time.Duration) {
	*on = true
	w.log("%s", what)
	w.after(w.chance(d), func() {
		*on = false
		w.log("no more %s", what)
	})
}

func (w *world) disturbTable(m *machine) {
	d := w.db
	switch w.rnd.IntN(8) {
	case 0:
		w.toggle("MySQL away", &d.away, 5*time.Second)
	case 1:
		w.toggle("MySQL read-only", &d.readOnly, 5*time.Second)
	case 2:
		d.cut[m] = !d.cut[m]
		w.log("%s cut off from MySQL: %t", m.name, d.cut[m])
	case 3, 4:
		name := pick(w.agenda, w.names...)
		d.locked[name] = true
		w.log("row %s is locked", name)
		w.after(w.chance(8*time.Second), func() {
			delete(d.locked, name)
			w.log("row %s is free", name)
		})
	case 5:
		w.edit()
	case 6:
		w.goBack()
	case 7:
		if w.conf.back {
			w.split()
		}
	}
}

// split splits the database, so that machines see different copies, or ends that: one copy survives.
func (w *world) split() {
	d := w.db
	if d.copies[0] == d.copies[1] {
		d.copies[1] = &rows{maps.Clone(d.copies[0].byName)}
		for _, m := range w.machines {
			m.side = w.rnd.IntN(2)
		}
		w.log("MySQL is split")
		return
	}
	w.unite()
}

func (w *world) unite() {
	d := w.db
	winner := d.copies[w.rnd.IntN(2)]
	d.copies = [2]*rows{winner, winner}
	w.log("MySQL is one again: %v", winner.byName)
}

// edit changes a row by SQL, as an operator may.
func (w *world) edit() {
	name := pick(w.agenda, w.names...)
	row, ok := w.db.copies[0].byName[name]
	back := w.conf.back
	switch what := w.rnd.IntN(5); {
	case !ok:
		row = segment.Row{Name: name, Step: 1 + w.rnd.Int64N(20), MaxID: 1}
		if !back || w.isStrict(name) { // the tag may have been there before; a tag that a row makes is loose
			return
		}
	case what == 0:
		row.MaxID += w.rnd.Int64N(100)
	case what == 1:
		row.Step = 1 + w.rnd.Int64N(20)
	case what == 2 && back:
		row.MaxID = max(1, row.MaxID-w.rnd.Int64N(100))
	case what == 3 && back:
		delete(w.db.copies[0].byName, name)
		w.log("row %s removed by SQL", name)
		return
	case what == 4:
		w.after(w.chance(3*time.Second), func() { w.badRow(name) })
		return
	}
	row.MaxID = min(row.MaxID, w.db.limit)
	w.db.set(0, row)
	w.log("row %s set by SQL: max_id %d, step %d", name, row.MaxID, row.Step)
}

// badRow gives a row a step that cannot be served.
func (w *world) badRow(name string) {
	if row, ok := w.db.copies[0].byName[name]; ok {
		step := row.Step
		row.Step = 0
		w.db.set(0, row)
		w.after(w.chance(3*time.Second), func() {
			if row, ok := w.db.copies[0].byName[name]; ok && row.Step == 0 {
				row.Step = max(1, step)
				w.db.set(0, row)
			}
		})
	}
}

// leafLoads lets a Leaf node load a range, which it issues.
func (w *world) leafLoads() {
	if w.quiet || w.over {
		return
	}
	w.after(w.chance(2*time.Second), w.leafLoads)
	name := pick(w.agenda, w.names...)
	row, ok := w.db.copies[0].byName[name]
	if !ok || row.Step < 1 || row.MaxID > w.db.limit-row.Step || w.db.away || w.db.readOnly || w.db.locked[name] {
		return
	}
	row.MaxID += row.Step
	w.db.set(0, row)
	w.log("Leaf loads %d-%d of %s", row.MaxID-row.Step, row.MaxID-1, name)
	if w.conf.back {
		return
	}
	w.issue(w.tags[name], span{segment.Range{Start: row.MaxID - row.Step, End: row.MaxID}, "Leaf", w.now()})
}

// crash ends the life of a worker, and begins another after a while.
func (m *machine) crash() {
	if m.life == nil || m.life.isDead() {
		return
	}
	m.world.log("%s crashes", m.life.name())
	m.life.kill()
	m.again()
}

// leave is a clean stop.
func (m *machine) leave() {
	if m.life == nil || m.life.isDead() {
		return
	}
	m.world.log("%s stops", m.life.name())
	l := m.life
	l.stop()
	go func() {
		<-l.ended
		m.world.post("stopped "+l.name(), func() {
			if !l.isDead() {
				l.kill()
				m.again()
			}
		})
	}()
}

func (m *machine) again() {
	life := m.life
	m.world.after(m.world.chance(3*time.Second), func() {
		if m.life == life && !m.world.over {
			m.start()
		}
	})
}

// repair ends all faults.
func (w *world) repair() {
	w.log("all is repaired")
	w.healthy = true
	w.js.away, w.js.stale, w.db.away, w.db.readOnly = false, false, false, false
	clear(w.js.cut)
	clear(w.db.cut)
	clear(w.db.locked)
	if w.db.copies[0] != w.db.copies[1] {
		w.unite()
	}
	for _, m := range w.machines {
		if m.life == nil || m.life.isDead() {
			m.start()
		}
	}
}

// removeRow removes the row of a deleted tag by SQL, if no Leaf node has loaded from it since max_id was that. An
// insert that is still under way would make the row again as it was at first, for Leaf nodes to load from.
func (w *world) removeRow(name string, maxID int64) {
	if w.db.inserts[name] > 0 {
		return
	}
	if b := w.js.bucket; b == nil || w.db.away || !strings.Contains(string(b.entries[name].Value), disabled) ||
		w.db.copies[0].byName[name].MaxID != maxID {
		return
	}
	delete(w.db.copies[0].byName, name)
	w.log("row %s removed by SQL", name)
}

// goBack lets the database lose commits, often twice within a poll or two.
func (w *world) goBack() {
	d := w.db
	if !w.conf.back || len(d.backups) == 0 || w.healthy {
		return
	}
	d.copies[0].byName = maps.Clone(d.backups[w.rnd.IntN(len(d.backups))])
	w.log("MySQL went back: %v", d.copies[0].byName)
	if w.one(2) {
		w.after(w.chance(2*w.conf.config.Poll), w.goBack)
	}
}
