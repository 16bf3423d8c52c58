package witness

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// slowDisk lets the disk of a worker take that long for a write.
func (one *worker) slowDisk(took time.Duration) {
	one.w.t.Helper()
	if err := one.witness.enter(context.Background()); err != nil {
		one.w.t.Fatal(err)
	}
	defer one.witness.leave()
	one.witness.toDisk(func() error { time.Sleep(took); return nil })
}

// failDisk lets no write of a worker reach its disk any more.
func (one *worker) failDisk() {
	one.w.t.Helper()
	if err := one.witness.enter(context.Background()); err != nil {
		one.w.t.Fatal(err)
	}
	defer one.witness.leave()
	one.witness.disk.next = time.Now().Add(time.Hour)
}

func TestAWorkerWhoseDiskWasSlowLeavesItsFloorsAtTheStop(t *testing.T) {
	for name, before := range map[string]time.Duration{"a moment ago": 0, "and has written since": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				dir := t.TempDir()
				a := w.start("a", dir)
				w.load(5, a)
				old := w.js.backup()
				time.Sleep(10 * time.Second)
				w.load(5, a)
				a.slowDisk(1200 * time.Millisecond)
				time.Sleep(before)
				a.end(true)
				w.js.restore(old)
				w.start("a", dir)
				w.repaired(15 * time.Second)
			})
		})
	}
}

func TestAJournalThatMissesAWriteIsWrittenSoon(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a := w.start("a", dir)
		w.load(5, a)
		a.slowDisk(1200 * time.Millisecond)
		a.witness.Reconnected() // it writes its witness
		time.Sleep(3 * time.Second)
		j, damaged, err := openJournal(dir)
		if err != nil || damaged != nil {
			t.Fatal(err, damaged)
		}
		if err := a.witness.enter(context.Background()); err != nil {
			t.Fatal(err)
		}
		defer a.witness.leave()
		if j.Token != a.witness.me.Token {
			t.Errorf("the journal names the write %s, the last one was %s", j.Token, a.witness.me.Token)
		}
	})
}

// A worker that begins must not take such an answer for one that the bucket is in order.
func TestAWorkerThatKnowsThatTheMarksWentBackSaysSo(t *testing.T) {
	play(t, func(w *world) {
		a := w.start("a", t.TempDir())
		w.load(5, a)
		answer := func() (m message) {
			if err := json.Unmarshal(a.witness.Hear(nil), &m); err != nil {
				t.Fatal(err)
			}
			return m
		}
		if m := answer(); m.Witness == "" || m.Incident != "" {
			t.Errorf("in order it answers %+v", m)
		}
		w.js.set(true, false) // so that it cannot open an incident
		a.witness.WentBack("a test")
		if m := answer(); m.Witness != "" {
			t.Errorf("without an incident it answers %+v, as a witness", m)
		}
		w.js.set(false, false)
		for late := time.Now().Add(20 * time.Second); answer().Incident == ""; time.Sleep(time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("it answers %+v, and names no incident", answer())
			}
		}
		w.served(15 * time.Second)
	})
}

// Those that found it do not wait for one another, and one that begins meanwhile loads nothing.
func TestAnIncidentIsOpenedAtOnce(t *testing.T) {
	play(t, func(w *world) {
		a, b, c := w.start("a", t.TempDir()), w.start("b", t.TempDir()), w.start("c", t.TempDir())
		time.Sleep(3 * time.Second)
		w.load(5, a, b, c)
		old := w.js.backup()
		time.Sleep(4 * time.Second)
		w.load(5, a, b, c)
		w.js.restore(old)
		w.reconnects.Add(1)
		for _, one := range []*worker{a, b, c} {
			one.witness.Reconnected()
		}
		d := w.start("d", "")
		began := time.Now()
		for w.alarmed() == 0 && time.Since(began) < time.Minute {
			_ = d.take(10)
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("an incident was opened after %v", took)
		}
		w.served(15 * time.Second)
	})
}

func TestAWorkerThatBeginsHeedsThatTheMarksWentBack(t *testing.T) {
	play(t, func(w *world) {
		a := w.start("a", t.TempDir())
		w.load(5, a)
		if err := a.witness.enter(context.Background()); err != nil {
			t.Fatal(err)
		}
		a.witness.WentBack("a test") // and it cannot open an incident yet
		b := w.start("b", "")
		time.Sleep(5 * time.Second)
		if err := b.take(1); err == nil {
			t.Error("it loads")
		}
		a.witness.leave()
		w.served(15 * time.Second)
	})
}

// Workers of another registry may answer on the same subjects.
func TestThatAnotherBucketWentBackStopsNobody(t *testing.T) {
	w := &Witness{registry: "mine"}
	for _, m := range []message{
		{Version: version, Registry: "other", Back: true}, {Version: version, Back: true},
		{Version: version + 1, Registry: "mine", Back: true}, {Version: version, Registry: "mine"},
	} {
		if w.saysBack(encode(m)) {
			t.Errorf("%+v was heeded", m)
		}
	}
	if !w.saysBack(encode(message{Version: version, Registry: "mine", Back: true})) {
		t.Error("a worker on the same bucket was not heeded")
	}
}

// The journal of a worker that was killed may be as old as the bucket that went back: then it notices nothing itself.
func TestAWorkerWhoseJournalWentBackWithTheMarksLeavesAGap(t *testing.T) {
	play(t, func(w *world) {
		dir, other := t.TempDir(), t.TempDir()
		a, b := w.start("a", dir), w.start("b", other)
		time.Sleep(3 * time.Second) // they wait for one another's answers
		w.load(5, b, a)
		old := w.js.backup()
		a.failDisk()
		time.Sleep(4 * time.Second)
		w.load(5, b, a)
		a.end(false)
		b.end(true)
		w.js.restore(old)
		a = w.start("a", dir)
		time.Sleep(5 * time.Second)
		w.start("b", other)
		time.Sleep(20 * time.Second)
		if err := a.take(1); err == nil || !strings.Contains(err.Error(), "natsid tag raise --all --by N") {
			t.Fatalf("%v, want a refusal, since what was loaded before the kill is not known", err)
		}
		raise(t, a, 1000)
		w.served(5 * time.Second)
	})
}

// A worker that joins the repair of another finds only then that its own witness is older than its process.
func TestAnAnswerHasTheGapThatItsOwnWriteShows(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a, b := w.start("a", dir), w.start("b", t.TempDir())
		time.Sleep(3 * time.Second)
		w.load(5, a, b)
		old := w.js.backup()
		time.Sleep(4 * time.Second)
		w.load(5, b, a)
		a.end(false)
		a = w.start("a", dir)
		time.Sleep(5 * time.Second)
		w.load(5, b)
		w.js.restore(old)
		for range 5 {
			_ = b.take(10)
		}
		time.Sleep(20 * time.Second)
		if err := a.take(1); err == nil {
			t.Error("served, though what was loaded before the kill is not known")
		}
	})
}

// So does one whose first look at the bucket failed.
func TestAWorkerThatBeginsWithARepairAnswersForTheProcessBefore(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a, b := w.start("a", dir), w.start("b", t.TempDir())
		time.Sleep(3 * time.Second)
		w.load(5, a, b)
		a.end(false)
		w.js.set(true, false)
		a = w.start("a", dir)
		time.Sleep(4 * time.Second) // it has read nothing
		w.js.set(false, false)
		b.witness.WentBack("a test")
		time.Sleep(20 * time.Second)
		if err := a.take(1); err == nil {
			t.Error("served, though what was loaded before the kill is not known")
		}
	})
}

func TestAWorkerThatWasKilledLongBeforeNeedsNoRaise(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a, b := w.start("a", dir), w.start("b", t.TempDir())
		time.Sleep(3 * time.Second)
		w.load(5, a, b)
		a.end(false)
		a = w.start("a", dir)
		time.Sleep(5 * time.Second)
		w.load(5, b)
		old := w.js.backup()
		time.Sleep(4 * time.Second)
		w.load(5, b)
		w.js.restore(old)
		w.repaired(15 * time.Second)
		_ = a
	})
}
