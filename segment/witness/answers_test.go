package witness

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
)

func TestWorkersThatStoppedCleanlyRepairWhatWentBackMeanwhile(t *testing.T) {
	play(t, func(w *world) {
		dirs := []string{t.TempDir(), t.TempDir()}
		a, b := w.start("a", dirs[0]), w.start("b", dirs[1])
		w.load(5, a, b)
		old := w.js.backup()
		time.Sleep(10 * time.Second)
		w.load(20, a, b)
		a.end(true)
		b.end(true)
		w.js.restore(old)
		a = w.start("a", dirs[0])
		time.Sleep(time.Second)
		b = w.start("b", dirs[1])
		w.repaired(20 * time.Second)
		w.load(5, a, b)
	})
}

// A backup that is made while all workers are stopped shows every witness as ended. What they loaded later is known to
// those that were started, and to no other.
func TestABackupOfStoppedWorkersSaysNothingOfWhatTheyLoadedLater(t *testing.T) {
	play(t, func(w *world) {
		dirs := []string{t.TempDir(), t.TempDir()}
		a, b := w.start("a", dirs[0]), w.start("b", dirs[1])
		w.load(5, a, b)
		a.end(true)
		b.end(true)
		old := w.js.backup()
		time.Sleep(time.Minute)
		a = w.start("a", dirs[0])
		time.Sleep(3 * time.Second)
		w.load(5, a)
		a.end(true)
		b = w.start("b", dirs[1]) // after a, which has seen it stopped
		time.Sleep(3 * time.Second)
		w.load(20, b)
		b.end(true)
		w.js.restore(old)
		a = w.start("a", dirs[0])
		time.Sleep(30 * time.Second)
		if err := a.take(1); err == nil || !strings.Contains(err.Error(), "worker b") {
			t.Errorf("%v, want a refusal that names the worker whose loads are not known", err)
		}
		w.start("b", dirs[1])
		w.served(20 * time.Second)
		w.load(5, w.all()...)
	})
}

// A worker that was removed long ago answers nothing: those that had seen it stop need no operator.
func TestAWorkerThatWasSeenToStopNeedNotAnswer(t *testing.T) {
	play(t, func(w *world) {
		a, b := w.start("a", t.TempDir()), w.start("b", t.TempDir())
		w.load(5, a, b)
		b.end(true)
		w.load(65, a) // a poll
		old := w.js.backup()
		w.load(5, a)
		w.js.restore(old)
		w.repaired(15 * time.Second)
		w.load(5, a)
	})
}

func TestKilledWorkersRefuseUntilAnOperatorRaisesAllTags(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a := w.start("a", dir)
		w.load(5, a)
		old := w.js.backup()
		time.Sleep(10 * time.Second)
		w.load(20, a)
		a.end(false)
		w.js.restore(old)
		a = w.start("a", dir)
		time.Sleep(20 * time.Second)
		if err := a.take(1); err == nil || !strings.Contains(err.Error(), "natsid tag raise --all --by N") {
			t.Fatalf("%v, want a refusal that names the command", err)
		}
		raise(t, a, 1000)
		w.served(5 * time.Second)
	})
}

// A tag that was made since the backup would begin at 1 again. Only who raises the tags can know of it.
func TestAfterARaiseNoTagIsMadeOnFirstUseUntilItsOperatorConfirms(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a := w.start("a", dir)
		firstUse := func() error {
			seat := segment.Tag{Name: "seat", Step: 10, MaxID: 1}
			_, err := a.witness.Gate(a.store).Create(context.Background(), seat, false)
			return err
		}
		w.load(5, a)
		old := w.js.backup()
		time.Sleep(10 * time.Second)
		w.load(20, a)
		if err := firstUse(); err != nil {
			t.Fatal(err)
		}
		a.end(false)
		w.js.restore(old)
		a = w.start("a", dir)
		time.Sleep(20 * time.Second)
		raise(t, a, 1000)
		w.served(5 * time.Second)
		if err := firstUse(); !errors.Is(err, ErrNotConfirmed) {
			t.Errorf("after the raise: %v", err)
		}
		old = w.js.backup()
		w.load(5, a)
		w.js.restore(old)
		for before := w.alarmed(); w.alarmed() == before; time.Sleep(time.Second) {
			_ = a.take(10)
		}
		time.Sleep(time.Second)
		w.served(15 * time.Second)
		if err := firstUse(); !errors.Is(err, ErrNotConfirmed) {
			t.Errorf("after another incident, which needed no raise: %v", err)
		}
		w.identify("r", true)
		if err := firstUse(); err != nil {
			t.Errorf("after the operator confirmed: %v", err)
		}
	})
}

// The journal of a killed worker names its last witness as one that landed: the one before it is not in order.
func TestOneWitnessSinceTheCopyIsEnoughForAKilledWorker(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a := w.start("a", dir)
		w.load(5, a)
		old := w.js.backup()
		w.load(4, a)
		a.end(false)
		w.js.restore(old)
		a = w.start("a", dir)
		time.Sleep(20 * time.Second)
		if err := a.take(1); err == nil {
			t.Fatal("served, though the marks went back")
		}
		raise(t, a, 1000)
		w.served(5 * time.Second)
	})
}

func TestAWorkerThatIsDownMustAnswerFirst(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a, b := w.start("a", t.TempDir()), w.start("b", dir)
		w.load(5, a, b)
		old := w.js.backup()
		time.Sleep(10 * time.Second)
		w.load(20, b)
		b.end(true)
		w.load(3, a)
		w.js.restore(old)
		time.Sleep(30 * time.Second)
		_ = a.take(10)
		time.Sleep(30 * time.Second)
		if err := a.take(10); err == nil || !strings.Contains(err.Error(), "worker b") {
			t.Fatalf("%v, want a refusal that names worker b", err)
		}
		w.start("b", dir)
		w.served(20 * time.Second)
	})
}

// A worker that never comes back leaves a witness that no answer brings forward.
func TestARaiseEndsTheIncidentOfAWorkerThatIsGone(t *testing.T) {
	play(t, func(w *world) {
		a, b := w.start("a", t.TempDir()), w.start("b", t.TempDir())
		w.load(5, a, b)
		old := w.js.backup()
		w.load(70, a, b) // a poll of a sees the witness of b
		b.end(false)
		w.js.restore(old)
		time.Sleep(70 * time.Second)
		if err := a.take(10); err == nil || !strings.Contains(err.Error(), "tag raise --all") {
			t.Fatalf("%v, want a refusal that names the command", err)
		}
		raise(t, a, 100_000)
		w.served(20 * time.Second)
		for range 5 {
			time.Sleep(time.Minute) // a poll
			a.mustTake(10)
		}
	})
}

// A load may meet a mark that went back before its worker's next check does.
func TestAWorkerThatWasKilledBeforeTheRestoredStateIsCovered(t *testing.T) {
	for since := range 7 { // more than two checks
		play(t, func(w *world) {
			dir := t.TempDir()
			a := w.start("a", dir)
			w.load(5, a)
			a.end(false)
			a = w.start("a", dir)
			w.load(5, a)
			old := w.js.backup()
			w.load(7+since, a)
			w.js.restore(old)
			w.repaired(15 * time.Second)
		})
	}
}

func TestAGapOutlivesARestart(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a := w.start("a", dir)
		w.load(5, a)
		old := w.js.backup()
		time.Sleep(10 * time.Second)
		w.load(20, a)
		a.end(false)
		w.js.restore(old)
		for _, cleanly := range []bool{false, true, false} {
			a = w.start("a", dir)
			time.Sleep(20 * time.Second)
			if err := a.take(1); err == nil {
				t.Fatal("served, though what was loaded before the kill is not known")
			}
			a.end(cleanly)
		}
		a = w.start("a", dir)
		time.Sleep(20 * time.Second)
		raise(t, a, 1000)
		w.served(5 * time.Second)
	})
}

func TestAWorkerThatIsKilledBeforeItHasAnsweredLeavesAGap(t *testing.T) {
	for _, within := range []time.Duration{0, 2 * time.Millisecond, 4 * time.Millisecond, 6 * time.Millisecond} {
		play(t, func(w *world) {
			dir := t.TempDir()
			a := w.start("a", dir)
			w.load(5, a)
			old := w.js.backup()
			time.Sleep(10 * time.Second)
			w.load(20, a)
			time.Sleep(4 * time.Second)
			w.js.restore(old)
			a.witness.Reconnected()
			for w.alarmed() == 0 && a.why() == nil {
				time.Sleep(time.Millisecond / 10)
			}
			time.Sleep(within)
			a.end(false)
			a = w.start("a", dir)
			time.Sleep(20 * time.Second)
			if err := a.take(1); err == nil {
				t.Errorf("%v after the proof: served, though the floors are lost", within)
			}
		})
	}
}
