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
