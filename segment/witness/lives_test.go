package witness

import (
	"strings"
	"testing"
	"time"
)

// A backup of workers that had stopped is restored: their witnesses in it say that they load nothing more.

func TestAContinuedLifeThatIsKilledIsNotTheOneThatStopped(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a := w.start("a", dir)
		w.load(5, a)
		a.end(true)
		old := w.js.backup()
		a = w.start("a", dir)
		w.load(10, a)
		a.end(false)
		w.js.restore(old)
		a = w.start("a", dir)
		time.Sleep(20 * time.Second)
		if err := a.take(1); err == nil {
			t.Error("served, though what was loaded after the backup is not known")
		}
	})
}

func TestWorkersThatStoppedBeforeTheBackupAnswerForWhatTheyLoadedSince(t *testing.T) {
	play(t, func(w *world) {
		dirs := []string{t.TempDir(), t.TempDir()}
		a, b := w.start("a", dirs[0]), w.start("b", dirs[1])
		w.load(5, a, b)
		a.end(true)
		b.end(true)
		old := w.js.backup()
		a, b = w.start("a", dirs[0]), w.start("b", dirs[1])
		time.Sleep(3 * time.Second)
		w.load(5, a, b)
		w.load(20, b)
		b.end(true)
		a.end(true)
		w.js.restore(old)
		a = w.start("a", dirs[0])
		for range 30 {
			_ = a.take(10)
			time.Sleep(time.Second)
		}
		w.start("b", dirs[1])
		w.served(20 * time.Second)
	})
}

func TestALifeThatContinuedAndStoppedAgainMustAnswer(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a, b := w.start("a", t.TempDir()), w.start("b", dir)
		w.load(5, a, b)
		b.end(true)
		old := w.js.backup()
		b = w.start("b", dir)
		time.Sleep(3 * time.Second)
		w.load(20, b)
		b.end(true)
		time.Sleep(2 * time.Minute) // a polls
		w.load(3, a)
		w.js.restore(old)
		for range 30 {
			_ = a.take(10)
			time.Sleep(time.Second)
		}
		if err := a.take(10); err == nil || !strings.Contains(err.Error(), "worker b") {
			t.Fatalf("%v, want a refusal that names worker b", err)
		}
		w.start("b", dir)
		w.served(20 * time.Second)
	})
}

func TestDamagedWitnessesAreWrittenAgain(t *testing.T) {
	play(t, func(w *world) {
		a, b := w.start("a", t.TempDir()), w.start("b", "")
		w.load(70, a, b) // all are seen by a poll
		w.js.damage(t, prefix)
		w.repaired(2 * time.Minute)
		w.load(5, a, b)
	})
}

func TestADamagedWitnessOfAWorkerThatIsGoneEndsWithARaise(t *testing.T) {
	play(t, func(w *world) {
		a, b := w.start("a", t.TempDir()), w.start("b", t.TempDir())
		w.load(5, a, b)
		a.end(false)
		b.end(false)
		w.js.damage(t, prefix)
		c := w.start("c", t.TempDir())
		time.Sleep(20 * time.Second)
		c.mustTake(1) // what a and b loaded lies below the marks
		a = w.start("a", t.TempDir())
		c.witness.WentBack("as a test says")
		time.Sleep(20 * time.Second)
		if err := c.take(1); err == nil || !strings.Contains(err.Error(), "tag raise --all") {
			t.Errorf("%v, want a refusal that names the command", err)
		}
		raise(t, a, 1000)
		w.served(20 * time.Second)
		time.Sleep(5 * time.Minute)
		w.served(0)
	})
}

func TestADamagedIncidentIsNotTakenForAClosedOne(t *testing.T) {
	play(t, func(w *world) {
		a, b := w.start("a", t.TempDir()), w.start("b", t.TempDir())
		w.load(5, a, b)
		a.witness.WentBack("as a test says")
		time.Sleep(20 * time.Second)
		w.load(5, a, b)
		w.js.damage(t, incidentKey)
		time.Sleep(20 * time.Second)
		_ = a.take(10)
		time.Sleep(20 * time.Second)
		if err := a.take(1); err == nil || !strings.Contains(err.Error(), "tag raise --all") || w.alarmed() < 2 {
			t.Errorf("%v, alarms %q, want an alarm, and a refusal that names the command", err, w.alarms)
		}
		raise(t, a, 1000)
		w.served(20 * time.Second)
		w.load(5, a, b)
	})
}

// Of more deleted tags than a worker remembers it does not know how far it had loaded them.
func TestAWorkerThatForgotFloorsHasAGap(t *testing.T) {
	for name, stopped := range map[string]bool{"while it runs": false, "in an earlier life": true} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				dir := t.TempDir()
				w.forgetful = true
				a := w.start("a", dir)
				w.load(5, a)
				old := w.js.backup()
				w.load(10, a)
				if stopped {
					a.end(true)
				}
				w.js.restore(old)
				if stopped {
					w.forgetful = false
					a = w.start("a", dir)
				}
				for range 10 {
					_ = a.take(10)
					time.Sleep(time.Second)
				}
				a.refuses()
				raise(t, a, 100_000)
				w.served(20 * time.Second)
			})
		})
	}
}
