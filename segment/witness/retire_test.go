package witness

import (
	"context"
	"strings"
	"testing"
	"time"
)

// pause ends all that a worker does, as SIGSTOP would, until the function that it returns is called.
func (one *worker) pause() (resume func()) {
	w := one.w
	one.stop()
	one.done.Wait()
	w.mu.Lock()
	for i, other := range w.workers {
		if other == one {
			w.workers = append(w.workers[:i:i], w.workers[i+1:]...)
			break
		}
	}
	w.mu.Unlock()
	return func() {
		ctx, stop := context.WithCancel(context.Background())
		one.stop = stop
		one.done.Go(func() { one.witness.Run(ctx) })
		one.done.Go(func() { one.ids.Follow(ctx) })
		w.mu.Lock()
		w.workers = append(w.workers, one)
		w.mu.Unlock()
	}
}

// refuses waits until a worker refuses until an operator raises all tags.
func (one *worker) refuses() {
	one.w.t.Helper()
	time.Sleep(20 * time.Second)
	if err := one.take(10); err == nil || !strings.Contains(err.Error(), "tag raise --all") {
		one.w.t.Fatalf("%v, want a refusal that names the command", err)
	}
}

// beginsWithin fails if a worker that begins waits for another one for longer.
func (one *worker) beginsWithin(most time.Duration) {
	one.w.t.Helper()
	began := time.Now()
	one.mustTake(1)
	if took := time.Since(began); took > most {
		one.w.t.Errorf("%s waited for %v", one.name, took)
	}
}

func TestARaiseRetiresTheWitnessOfAWorkerThatIsGone(t *testing.T) {
	play(t, func(w *world) {
		a, b := w.start("a", t.TempDir()), w.start("b", t.TempDir())
		w.load(5, a, b)
		old := w.js.backup()
		w.load(70, a, b)
		b.end(false)
		w.js.restore(old)
		w.load(0, a)
		for range 10 {
			_ = a.take(10)
			time.Sleep(time.Second)
		}
		a.refuses()
		raise(t, a, 100_000)
		w.served(20 * time.Second)
		w.start("c", t.TempDir()).beginsWithin(time.Second)

		alarms := w.alarmed()
		again := w.js.backup()
		w.load(10, a)
		w.js.restore(again)
		for range 10 {
			_ = a.take(10)
			time.Sleep(time.Second)
		}
		w.served(20 * time.Second) // without another raise
		if w.alarmed() != alarms+1 {
			t.Errorf("%d alarms, want one more than %d", w.alarmed(), alarms)
		}
	})
}

// A worker is paused while the marks go back, and resumes after an operator has raised all tags. One that resumes
// sooner may find that revisions fell: then it begins an incident, which ends by itself.
func TestAPausedWorkerWhoseWitnessWasRetiredBeginsAnew(t *testing.T) {
	for name, ended := range map[string]bool{"resumes": false, "is killed and starts again": true} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				dir := t.TempDir()
				a, b := w.start("a", t.TempDir()), w.start("b", dir)
				w.load(5, a, b)
				old := w.js.backup()
				w.load(70, a, b)
				b.mustTake(3) // seven of its range are left
				time.Sleep(time.Second)
				resume := b.pause()
				w.js.restore(old)
				for range 10 {
					_ = a.take(10)
					time.Sleep(time.Second)
				}
				a.refuses()
				raise(t, a, 100_000)
				w.served(20 * time.Second)
				w.load(200, a) // the bucket has moved beyond what b knows
				alarms := w.alarmed()
				if resume(); ended {
					b.end(false)
					b = w.start("b", dir)
				}
				time.Sleep(time.Second)
				b.mustTake(1)
				w.mu.Lock()
				next := w.ids[len(w.ids)-1]
				w.mu.Unlock()
				if next.Start < 100_000 {
					t.Errorf("the worker issues %v, below the raise", next)
				}
				w.load(10, b, a)
				if w.alarmed() != alarms {
					t.Errorf("%d alarms, want none beside %d", w.alarmed(), alarms)
				}
			})
		})
	}
}

func TestAWitnessThatIsSilentForADayIsRetired(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		a, b := w.start("a", t.TempDir()), w.start("b", dir)
		w.load(5, a, b)
		b.end(false)
		c := w.start("c", t.TempDir())
		time.Sleep(3 * time.Second)
		c.end(true)
		time.Sleep(25 * time.Hour)
		w.start("d", t.TempDir())
		time.Sleep(3 * time.Second) // it waits for b, and retires it
		w.start("e", t.TempDir()).beginsWithin(time.Second)
		w.start("b", dir).beginsWithin(time.Second)
		w.served(20 * time.Second)
		if w.alarmed() != 0 {
			t.Errorf("alarms %q", w.alarms)
		}
	})
}

// A worker at rest hears nothing of an incident in which another one was gone for good.
func TestAWorkerThatMissedARaiseTakesNoRetiredWitnessForAnOlderOne(t *testing.T) {
	play(t, func(w *world) {
		a, gone, rests := w.start("a", t.TempDir()), w.start("gone", t.TempDir()), w.start("rests", t.TempDir())
		time.Sleep(3 * time.Second)
		old := w.js.backup()
		w.load(70, a, gone) // rests sees both
		gone.end(false)
		resume := rests.pause()
		w.js.restore(old)
		for range 10 {
			_ = a.take(10)
			time.Sleep(time.Second)
		}
		a.refuses()
		raise(t, a, 100_000)
		w.served(20 * time.Second)
		w.load(200, a)
		alarms := w.alarmed()
		resume()
		for range 3 {
			rests.mustTake(10)
			time.Sleep(time.Minute) // a poll
		}
		if w.alarmed() != alarms {
			t.Errorf("%d alarms, want none beside %d", w.alarmed(), alarms)
		}
	})
}

// A worker that missed a repair is the only one that knows of another one's last life: it must not forget it.
func TestAWorkerThatMissedARepairKeepsWhatItKnows(t *testing.T) {
	play(t, func(w *world) {
		dir := t.TempDir()
		knows, away := w.start("knows", t.TempDir()), w.start("away", dir)
		time.Sleep(3 * time.Second)
		w.load(3, away)
		away.end(true)
		old := w.js.backup()
		away = w.start("away", dir)
		time.Sleep(3 * time.Second)
		w.load(20, away)
		away.end(true)
		time.Sleep(2 * time.Minute) // knows sees it
		resume := knows.pause()
		w.js.restore(old)
		other := w.start("other", t.TempDir()) // sees nothing but the restored state
		time.Sleep(5 * time.Second)
		other.witness.WentBack("as a test says")
		time.Sleep(time.Second)
		resume()
		for range 3 {
			_ = knows.take(10)
			time.Sleep(time.Minute) // a poll
		}
		if err := knows.take(10); err == nil || !strings.Contains(err.Error(), "worker away") {
			t.Errorf("%v, want a refusal that names the worker that is away", err)
		}
	})
}

func TestAnEntryOfANewerNatsidRaisesOneAlarm(t *testing.T) {
	play(t, func(w *world) {
		a := w.start("a", t.TempDir())
		w.load(5, a)
		w.js.put(prefix+"newer", `{"version":2,"token":"t","life":"l"}`)
		b := w.start("b", t.TempDir())
		for range 5 {
			_ = b.take(10)
			time.Sleep(time.Second)
		}
		if err := b.take(10); err == nil {
			t.Error("it loads beside a newer natsid")
		}
		if w.alarmed() != 1 || !strings.Contains(w.alarms[0], "upgrade this worker") {
			t.Errorf("alarms %q, want one", w.alarms)
		}
	})
}
