package grants

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A truth is the real history of one tag, of which processes write down a part. All that it knows of uniqueness is
// which IDs each load had.
type truth struct {
	*rand.Rand
	now      int64 // Unix ms
	revision uint64
	mark     int64
	at       int64 // when the mark was written
	history  []int64
	all      []*holding
	live     []*author
	authors  int
	entries  []timed

	putBack bool // the mark was
	killed  bool // a process was
	dull    bool // what a killed process did not write down left the mark as it was
}

// An author is a process.
type author struct {
	name    string
	floor   int64
	entry   uint64
	pending Batch
	hole    *Write // the write of its last load that failed; nil if it is settled
	landed  uint64 // the revision that this has written; 0 if it did not land
}

// A holding is a load that was granted.
type holding struct {
	by          string
	first, last int64
	discarded   bool
}

func newTruth(seed uint64) *truth {
	w := &truth{Rand: rand.New(rand.NewPCG(seed, 7)), now: 1e9, revision: 1e6}
	for range 3 {
		w.start()
	}
	w.write(w.live[0], "create", 1)
	w.flush(w.live[0], false)
	return w
}

// start starts a process, which writes down at once that it is there.
func (w *truth) start() {
	a := &author{name: fmt.Sprint("P", w.authors)}
	w.authors++
	a.pending.Windows = []Window{{Number: w.authors, From: w.now, Until: w.now + 1, How: "acquired"}}
	w.live = append(w.live, a)
	w.flush(a, false)
}

// flush writes an entry.
func (w *truth) flush(a *author, end bool) {
	a.entry++
	a.pending.Head = Head{Process: a.name, Instance: a.name, Entry: a.entry, End: end}
	body, _ := a.pending.encode(1 << 20)
	var b Batch
	if err := b.decode(body, make(map[string]string)); err != nil {
		panic(err)
	}
	w.entries = append(w.entries, timed{w.now, b})
	a.pending = Batch{}
}

// set sets the mark, as a compare-and-set or an operator does.
func (w *truth) set(mark int64) {
	w.revision += 1 + w.Uint64N(3)
	w.mark, w.at = mark, w.now
	w.history = append(w.history, mark)
}

// write writes a mark for another reason than a load, by a write of which the process may not learn the outcome.
func (w *truth) write(a *author, how string, after int64) {
	wr := Write{
		Tag: "a", How: how, Before: w.mark, After: after, Read: w.revision, Replaced: w.at, Time: w.now,
	}
	if how == "create" {
		wr.Read = 0
	}
	landed := how == "create" || w.IntN(10) > 0
	if landed {
		w.set(after)
	}
	if landed && (how == "create" || w.IntN(5) > 0) {
		wr.Written = w.revision
	}
	a.pending.Writes = append(a.pending.Writes, wr)
}

// load lets a process load. Its acknowledgement may be lost.
func (w *truth) load(a *author) {
	if a.hole != nil {
		w.resolve(a)
		return
	}
	first := max(w.mark, a.floor)
	wr := Write{
		Tag: "a", How: "load", Before: w.mark, After: first + 1 + w.Int64N(20), Read: w.revision, Replaced: w.at,
		Time: w.now,
	}
	switch w.IntN(8) {
	case 0: // it did not land
		a.hole = &wr
	case 1: // it did, and its acknowledgement was lost
		w.set(wr.After)
		a.hole, a.landed = &wr, w.revision
	default:
		w.set(wr.After)
		wr.Written = w.revision
		w.grant(a, wr, first)
		return
	}
	a.pending.Writes = append(a.pending.Writes, wr)
}

// resolve decides how a process uses a range that it may have loaded.
func (w *truth) resolve(a *author) {
	wr, first := *a.hole, max(a.hole.Before, a.floor)
	mine := a.landed > 0 && w.mark >= wr.After && w.IntN(4) > 0
	if mine && a.landed == w.revision {
		wr.Written = w.revision
	}
	a.hole, a.landed = nil, 0
	if mine {
		w.grant(a, wr, first)
	}
}

func (w *truth) grant(a *author, wr Write, first int64) {
	a.floor = wr.After
	w.all = append(w.all, &holding{by: a.name, first: first, last: wr.After - 1})
	a.pending.Loads = append(a.pending.Loads, Load{
		Tag: "a", First: first, Last: wr.After - 1, Before: wr.Before, Read: wr.Read, Written: wr.Written,
		Replaced: wr.Replaced, Time: w.now,
	})
}

// kill kills a process. Its unrecorded loads are lost, and no backup has them: see chain for the undetected cases.
func (w *truth) kill(i int) {
	a := w.live[i]
	w.killed = true
	w.live = slices.Delete(w.live, i, i+1)
	hidden := make(map[int64]bool)
	for _, l := range a.pending.Loads {
		hidden[l.Last+1] = true
	}
	for _, wr := range a.pending.Writes {
		hidden[wr.After] = true
	}
	w.history = slices.DeleteFunc(w.history, func(mark int64) bool { return hidden[mark] })
	w.dull = w.dull || slices.ContainsFunc(a.pending.Writes, func(w Write) bool { return w.Before == w.After })
}

// back sets the mark to an old value, by hand. The next load records that: see chain, too.
func (w *truth) back() {
	for _, a := range w.live {
		w.flush(a, false)
	}
	w.putBack = true
	w.now += 2 * landing // else it may be taken for a write whose outcome was not known
	w.set(w.history[w.IntN(len(w.history))])
	a := w.live[w.IntN(len(w.live))]
	a.hole = nil
	w.load(a)
	w.flush(a, false)
}

// step lets something happen.
func (w *truth) step(mayPutBack bool) {
	w.now += w.Int64N(2000)
	i := w.IntN(len(w.live))
	a := w.live[i]
	switch n := w.IntN(40); {
	case n < 22:
		w.load(a)
	case n < 30:
		w.flush(a, false)
	case n < 32:
		w.write(a, "raise", w.mark+w.Int64N(50))
	case n < 33:
		w.write(a, "update", w.mark)
	case n < 35:
		w.discard(a)
	case n < 36 && mayPutBack && len(w.history) > 0:
		w.back()
	case n < 37 && !w.killed:
		w.kill(i)
		w.start()
	case n < 38:
		w.flush(a, true)
		w.live = slices.Delete(w.live, i, i+1)
		w.start()
	}
}

// discard lets a process discard one of its loads.
func (w *truth) discard(a *author) {
	for _, h := range w.all {
		if h.by == a.name && !h.discarded {
			h.discarded = true
			a.pending.Discards = append(a.pending.Discards, Discard{"a", h.first, h.last, w.now})
			return
		}
	}
}

// repeats reports whether two loads that were not discarded share an ID, of those that a list of entries has.
func (w *truth) repeats() bool {
	had := make(map[int64]bool)
	for _, h := range w.all {
		for id := h.first; id <= h.last && !h.discarded; id++ {
			if had[id] {
				return true
			}
			had[id] = true
		}
	}
	return false
}

// writtenRepeats reports whether entries say that an ID was granted twice.
func writtenRepeats(entries []timed) bool {
	type id struct {
		process string
		id      int64
	}
	discarded := make(map[id]bool)
	for _, e := range entries {
		for _, d := range e.Discards {
			for n := d.First; n <= d.Last; n++ {
				discarded[id{e.Process, n}] = true
			}
		}
	}
	had := make(map[int64]bool)
	for _, e := range entries {
		for _, l := range e.Loads {
			for n := l.First; n <= l.Last; n++ {
				if discarded[id{e.Process, n}] {
					continue
				}
				if had[n] {
					return true
				}
				had[n] = true
			}
		}
	}
	return false
}

// TestAnAuditProvesWhatIsTrueAndNothingElse compares audits of random schedules with the truth.
func TestAnAuditProvesWhatIsTrueAndNothingElse(t *testing.T) {
	schedules := uint64(6000)
	if testing.Short() {
		schedules = 1000
	}
	counts := make(map[string]int)
	for seed := range schedules {
		w := newTruth(seed)
		mayPutBack := seed%2 == 0
		for range 10 + w.IntN(60) {
			w.step(mayPutBack)
		}
		for _, a := range w.live {
			w.flush(a, true)
		}
		s := scene{entries: w.entries, present: present(w.mark, w.revision), presentAt: w.at, whole: true}
		if w.IntN(3) == 0 {
			s.entries, s.whole = s.entries[w.IntN(len(s.entries)):], false
		}
		verdict, why, _ := strings.Cut(judged(t, s), "\n")
		verdict, _, _ = strings.Cut(verdict, ",")
		counts[verdict]++
		fail := func(what string) {
			t.Fatalf("seed %d: %s, and the audit says: %s: %s\nwhole %t, mark put back %t, killed %t",
				seed, what, verdict, why, s.whole, w.putBack, w.killed)
		}
		switch repeated := writtenRepeats(s.entries); {
		case repeated != (verdict == "repeated"):
			fail(fmt.Sprintf("it is %t that grants share an ID", repeated))
		case s.whole && w.repeats() && verdict == "1 proven":
			fail("IDs repeat")
		case !w.putBack && !w.dull && (s.whole || !w.killed) && verdict != "1 proven" && verdict != "0 proven":
			fail("nothing is wrong")
		}
	}
	for _, verdict := range []string{"1 proven", "not proven", "repeated"} {
		if counts[verdict] < int(schedules/20) {
			t.Errorf("few schedules are %s: %v", verdict, counts)
		}
	}
	t.Log(counts)
}
