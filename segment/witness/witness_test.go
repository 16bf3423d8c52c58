package witness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMarksThatWentBackAreLiftedAndServiceGoesOn(t *testing.T) {
	for name, restore := range map[string]time.Duration{
		"of a moment ago": 2 * time.Second, "of an hour ago": time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				a, b, c := w.start("a", t.TempDir()), w.start("b", t.TempDir()), w.start("c", "")
				w.load(20, a, b, c)
				old := w.js.backup()
				time.Sleep(restore - 2*time.Second)
				w.load(2, a, b)
				w.load(2, c)
				w.js.restore(old)
				w.repaired(15 * time.Second)
				w.load(10, a, b, c)
			})
		})
	}
}

func TestABucketThatMovedOnAfterItWentBackIsFoundByTheWitness(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a := w.start("a", dir)
		a.mustTake(1)
		old := w.js.backup()
		time.Sleep(10 * time.Second)
		w.load(20, a)
		a.end(false)
		w.js.restore(old)
		b := w.start("b", t.TempDir()) // remembers nothing, and is alone
		_ = b.take(1)
		time.Sleep(time.Minute)
		w.mu.Lock()
		w.ids = nil // what b loaded alone repeats: nothing could show it
		w.mu.Unlock()
		w.start("a", dir)
		time.Sleep(30 * time.Second)
		for _, one := range w.all() {
			if err := one.take(1); err == nil {
				t.Errorf("%s serves, though what a loaded before it was killed is not known", one.name)
			} else if !strings.Contains(err.Error(), "natsid tag raise --all --by N") {
				t.Errorf("%s: %v, want the command", one.name, err)
			}
		}
	})
}

// A worker begins when it can load: where another one does not answer, after two seconds.
func TestAWorkerBeginsWhenItCanLoad(t *testing.T) {
	play(t, func(w *world) {
		a, dead := w.start("a", t.TempDir()), w.start("b", t.TempDir())
		w.load(5, a, dead)
		dead.end(false)
		c := w.start("c", t.TempDir())
		time.Sleep(time.Second)
		if c.begun.Load() {
			t.Error("begun, though the worker waits for the others")
		}
		time.Sleep(2 * time.Second)
		if !c.begun.Load() {
			t.Error("not begun, though the wait is over")
		}
		c.mustTake(1)
	})
}

// A maximum age takes the identity and the witnesses along.
func TestABucketThatExpiredServesOnceItIsConfirmed(t *testing.T) {
	play(t, func(w *world) {
		a, b := w.start("a", t.TempDir()), w.start("b", t.TempDir())
		w.load(70, a, b)
		w.js.forget(prefix)
		w.identify("", false)
		time.Sleep(2 * time.Minute)
		w.identify("r2", true)
		time.Sleep(time.Minute)
		for range 3 {
			w.served(time.Minute)
			time.Sleep(time.Minute)
		}
		if w.alarmed() > 0 {
			t.Error("an alarm of an incident, though the bucket has another identity")
		}
	})
}

func TestAWitnessIsWrittenOnceAPollAtRestAndOnceIn2sUnderLoad(t *testing.T) {
	play(t, func(w *world) {
		a, b := w.start("a", t.TempDir()), w.start("b", "")
		w.load(5, a, b)
		before := w.js.count(prefix)
		w.load(60, a, b)
		if n := w.js.count(prefix) - before; n > 62 {
			t.Errorf("%d writes of two witnesses in 60 s of load, want at most one in 2 s each", n)
		}
		time.Sleep(10 * time.Second)
		before, all := w.js.count(prefix), w.js.count("")
		time.Sleep(10 * time.Minute)
		n, all := w.js.count(prefix)-before, w.js.count("")-all
		if n < 2*10 || n > 2*14 || all != n {
			t.Errorf("%d writes of two witnesses in 10 min at rest, %d of all, want 20 to 28", n, all)
		}
	})
}

func TestLoadsOfABusyWorkerDoNotWaitForItsWitness(t *testing.T) {
	play(t, func(w *world) {
		a := w.start("a", t.TempDir())
		time.Sleep(10 * time.Second)
		for i := range 600 {
			began := time.Now()
			if err := a.witness.Ready(w.t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); i > 0 && took > 0 {
				t.Errorf("load %d waited for %v", i, took)
			}
			time.Sleep(100 * time.Millisecond)
		}
		w.js.set(true, false)
		ready := func() error {
			ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
			defer cancel()
			return a.witness.Ready(ctx)
		}
		for began := time.Now(); ready() == nil; time.Sleep(100 * time.Millisecond) {
			if time.Since(began) > 3*time.Second {
				t.Fatal("a load rests on a check of more than 3 s ago")
			}
		}
	})
}

func TestALostAcknowledgementIsRecognized(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a := w.start("a", dir)
		w.load(3, a)
		w.js.set(false, true)
		time.Sleep(4 * time.Second)
		_ = a.take(10)
		_ = a.take(10)
		a.end(false) // its last write landed, and its journal names it as pending
		w.js.set(false, false)
		a = w.start("a", dir)
		w.load(3, a)
		if w.alarmed() > 0 {
			t.Errorf("alarms %q", w.alarms)
		}
	})
}

func TestJetStreamThatIsAwayIsNotOneThatWentBack(t *testing.T) {
	play(t, func(w *world) {
		a, b := w.start("a", t.TempDir()), w.start("b", t.TempDir())
		w.load(5, a, b)
		w.js.set(true, false)
		for range 10 {
			_ = a.take(10)
			time.Sleep(time.Second)
		}
		w.js.set(false, false)
		a.witness.Reconnected()
		b.witness.Reconnected()
		w.served(10 * time.Second)
		if w.alarmed() > 0 {
			t.Errorf("alarms %q", w.alarms)
		}
	})
}

func TestACopiedDataDirectoryGetsAWitnessOfItsOwn(t *testing.T) {
	play(t, func(w *world) {
		dir, other := t.TempDir(), t.TempDir()
		a := w.start("a", dir)
		w.load(3, a)
		copyDir(t, dir, other)
		w.load(10, a)
		b := w.start("b", other)
		w.load(10, a, b)
		if w.alarmed() > 0 {
			t.Errorf("alarms %q", w.alarms)
		}
		if a.witness.journal.Witness == b.witness.journal.Witness {
			t.Error("two workers share a witness")
		}
	})
}

func TestOneLostLoadIsFound(t *testing.T) {
	play(t, func(w *world) {
		a, b := w.start("a", t.TempDir()), w.start("b", t.TempDir())
		w.load(10, a, b)
		a.mustTake(10)
		old := w.js.backup()
		b.mustTake(30)
		synctest.Wait()
		w.js.restore(old)
		w.repaired(15 * time.Second)
	})
}

func TestAWorkerAtRestKnowsHowFarOthersHaveLoaded(t *testing.T) {
	play(t, func(w *world) {
		a, b := w.start("a", t.TempDir()), w.start("b", t.TempDir())
		time.Sleep(time.Minute)
		w.load(4, a)
		old := w.js.backup()
		a.mustTake(30)
		time.Sleep(4 * time.Second)
		w.js.restore(old)
		for range 5 {
			_ = b.take(10) // its own witness is as it was written
		}
		w.repaired(15 * time.Second)
	})
}

func TestAProcessThatBeginsAsksTheOthersFirst(t *testing.T) {
	play(t, func(w *world) {
		a := w.start("a", t.TempDir())
		w.load(4, a)
		old := w.js.backup()
		w.load(2, a)
		w.js.restore(old)
		b := w.start("b", "")
		for range 5 {
			_ = b.take(10)
		}
		w.repaired(15 * time.Second)
	})
}

func TestAtRestAPollFindsWhatWentBack(t *testing.T) {
	for name, load := range map[string]bool{"marks": true, "witnesses": false} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				w.deaf = true
				dir := t.TempDir()
				a := w.start("a", t.TempDir())
				b := w.start("b", dir)
				time.Sleep(3 * time.Second) // they wait for one another's answers
				w.load(2, a, b)
				old := w.js.backup()
				if load {
					a.mustTake(30) // its witness is not written again
				} else {
					b.end(true)
					w.start("b", dir)
				}
				time.Sleep(2 * time.Minute)
				w.js.restore(old)
				time.Sleep(2 * time.Minute)
				if w.alarmed() == 0 {
					t.Error("no alarm")
				}
			})
		})
	}
}

// Each look reads the witnesses of all, so as many looks by each worker would cost the square of the fleet.
func TestAWorkerOfALargeFleetLooksSeldomAtAllWitnesses(t *testing.T) {
	for fleet, looks := range map[int][2]int64{3: {55, 85}, 500: {5, 10}, 5000: {2, 5}} {
		play(t, func(w *world) {
			a := w.start("a", t.TempDir())
			for i := range fleet - 1 {
				r := encode(record{Version: version, Counter: 1, Token: newToken(), Life: newToken(), Ended: true})
				_, err := a.store.Own().Create(context.Background(), prefix+fmt.Sprint("w", i), r)
				if err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * time.Minute)
			before := w.js.lists.Load()
			time.Sleep(time.Hour)
			if n := w.js.lists.Load() - before; n < looks[0] || n > looks[1] {
				t.Errorf("among %d it looked %d times in an hour, want %v", fleet, n, looks)
			}
		})
	}
}

// Where hundreds start at once, each listing costs the square of the fleet.
func TestAStartListsTheWitnessesOnce(t *testing.T) {
	play(t, func(w *world) {
		a := w.start("a", t.TempDir())
		time.Sleep(3 * time.Second)
		before := w.js.lists.Load()
		b := w.start("b", t.TempDir())
		time.Sleep(3 * time.Second)
		if n := w.js.lists.Load() - before; n != 1 {
			t.Errorf("%d listings, want one", n)
		}
		for _, one := range []*worker{a, b} {
			one.mustTake(1)
		}
		if !b.witness.seen[a.witness.journal.Witness] {
			t.Error("the worker has not noted the other one")
		}
	})
}

func TestFloorsOfAStopAreNotThoseOfALaterKill(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a := w.start("a", dir)
		w.load(5, a)
		a.end(true)
		a = w.start("a", dir)
		w.load(5, a)
		old := w.js.backup()
		w.load(10, a)
		a.end(false)
		w.js.restore(old)
		a = w.start("a", dir)
		time.Sleep(20 * time.Second)
		if err := a.take(1); err == nil {
			t.Error("served, though what was loaded after the last clean stop is not known")
		}
	})
}

func TestAfterAReconnectTheOthersAreAsked(t *testing.T) {
	play(t, func(w *world) {
		a, b := w.start("a", t.TempDir()), w.start("b", t.TempDir())
		time.Sleep(3 * time.Second)
		w.load(4, a, b)
		old := w.js.backup()
		a.mustTake(30)                    // not announced yet
		time.Sleep(20 * time.Millisecond) // nor does a load again by itself
		w.js.restore(old)
		w.reconnects.Add(1)
		for range 5 {
			_ = b.take(10)
		}
		w.repaired(15 * time.Second)
	})
}

func TestAProofIsAWriteOfItsOwn(t *testing.T) {
	play(t, func(w *world) {
		a := w.start("a", t.TempDir())
		time.Sleep(3 * time.Second)
		prove := func() error {
			ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Second)
			defer cancel()
			return a.witness.Prove(ctx)
		}
		for range 3 { // however short the time since the last one
			before := w.js.count(prefix)
			if err := prove(); err != nil || w.js.count(prefix) != before+1 {
				t.Errorf("%v, and %d writes, want one", err, w.js.count(prefix)-before)
			}
		}
		w.js.set(true, false)
		if prove() == nil {
			t.Error("proven, though the bucket is away")
		}
		w.js.set(false, false)
		if err := prove(); err != nil {
			t.Error(err)
		}
		w.js.set(true, false) // so that the repair takes its time
		a.witness.WentBack("a test")
		if err := prove(); !errors.Is(err, ErrWentBack) {
			t.Errorf("while the marks are repaired: %v", err)
		}
		w.js.set(false, false)
		time.Sleep(10 * time.Second)
		w.identify("", false)
		if err := prove(); !errors.Is(err, ErrHomeless) {
			t.Errorf("in a bucket without identity: %v", err)
		}
	})
}
