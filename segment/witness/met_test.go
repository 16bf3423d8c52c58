package witness

import (
	"strings"
	"testing"
	"time"
)

// refused lets a worker try to load for half a minute, and fails unless it is refused in the end.
func (one *worker) mustRefuse(why string) {
	one.w.t.Helper()
	for range 30 {
		_ = one.take(10)
		time.Sleep(time.Second)
	}
	if err := one.take(10); err == nil || !strings.Contains(err.Error(), why) {
		one.w.t.Fatalf("%s: %v, want a refusal: %s", one.name, err, why)
	}
}

// Between two looks of the others a worker begins, loads, and is gone with its witness.

func TestAWorkerThatBeganSinceTheLastLookMustAnswer(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a := w.start("a", t.TempDir())
		w.load(3, a)
		old := w.js.backup()
		b := w.start("b", dir)
		w.load(10, b)
		b.end(true)
		w.js.restore(old)
		a.mustRefuse("worker that began lately")
		w.start("b", dir)
		w.served(20 * time.Second)
	})
}

func TestAWorkerThatContinuedSinceTheLastLookMustAnswer(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a, b := w.start("a", t.TempDir()), w.start("b", dir)
		w.load(3, a, b)
		b.end(true)
		time.Sleep(3 * time.Minute)
		old := w.js.backup()
		b = w.start("b", dir)
		w.load(10, b)
		b.end(false)
		w.js.restore(old)
		a.mustRefuse("worker b")
		raise(t, a, 1000)
		w.served(5 * time.Second)
	})
}

func TestAWorkerThatBeganAndStoppedBeforeTheBackupNeedNotAnswer(t *testing.T) {
	play(t, func(w *world) {
		a := w.start("a", t.TempDir())
		b := w.start("b", t.TempDir())
		w.load(10, b)
		b.end(true)
		time.Sleep(3 * time.Minute)
		old := w.js.backup()
		w.load(10, a)
		w.js.restore(old)
		w.repaired(20 * time.Second)
	})
}

func TestASecondSetBackTakesBackWhatTheFirstRepairRaised(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a := w.start("a", t.TempDir())
		w.load(3, a)
		old := w.js.backup()
		b := w.start("b", dir)
		w.load(20, b)
		time.Sleep(3 * time.Minute) // a looks
		w.js.restore(old)
		w.repaired(20 * time.Second)
		w.load(2, b)
		b.end(true)
		w.js.restore(old)
		a.mustRefuse("worker b")
		w.start("b", dir)
		w.served(20 * time.Second)
	})
}

func TestAfterARepairTheWitnessesAreThoseThatThereAre(t *testing.T) {
	play(t, func(w *world) {
		a := w.start("a", t.TempDir())
		w.load(3, a)
		old := w.js.backup()
		b := w.start("b", t.TempDir())
		w.load(5, b)
		time.Sleep(3 * time.Minute) // a looks
		b.end(false)
		w.js.restore(old)
		a.mustRefuse("worker b")
		raise(t, a, 1000)
		w.served(5 * time.Second)
		time.Sleep(3 * time.Minute)
		before := w.alarmed()
		old = w.js.backup()
		w.load(5, a)
		time.Sleep(3 * time.Minute)
		w.served(time.Second)
		if w.alarmed() != before {
			t.Error("an alarm of a set-back that was repaired")
		}
		w.js.restore(old)
		w.load(1)
		for range 10 {
			_ = a.take(10)
			time.Sleep(time.Second)
		}
		w.served(20 * time.Second)
	})
}

func TestAnIdleWorkerThatWasKilledFindsThatTheMarksWentBack(t *testing.T) {
	play(t, func(w *world) {
		dirs := []string{t.TempDir(), t.TempDir()}
		a, b := w.start("a", dirs[0]), w.start("b", dirs[1])
		w.load(3, a, b)
		time.Sleep(4 * time.Second)
		old := w.js.backup()
		w.load(100, b)
		a.end(false)
		b.end(false)
		w.js.restore(old)
		a = w.start("a", dirs[0])
		a.mustRefuse("worker b")
	})
}
