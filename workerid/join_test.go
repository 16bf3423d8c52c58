package workerid_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

func later(c *workerid.Config) { c.Layout.Epoch += 3600_000 }

// Whoever deletes the key while all workers are away must not make room for another layout.
func TestADeploymentIsMadeOnlyWithoutRecordsOrAsTheyNameIt(t *testing.T) {
	for _, c := range []struct {
		name    string
		damaged bool // the records do not name it
		change  func(*workerid.Config)
		refused bool
	}{
		{"the same layout", false, func(*workerid.Config) {}, false},
		{"another layout", false, later, true},
		{"an unknown layout", true, func(*workerid.Config) {}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := new(workeridtest.Memory)
			a := start(t, m)
			time.Sleep(10 * time.Second)
			w := a.number()
			had, err := a.reg.Deployment(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			a.end()
			if c.damaged {
				damage(t, a.reg, w)
			}
			m.Deploy(workerid.Deployment{})
			b := start(t, m, c.change)
			time.Sleep(10 * time.Second)
			if s := b.keeper.Status(); s.Held == c.refused {
				t.Errorf("%s: %+v, want refused: %t", c.name, s, c.refused)
			}
			have, err := b.reg.Deployment(t.Context())
			if c.refused && !errors.Is(err, workerid.ErrNoDeployment) || !c.refused && have != had {
				t.Errorf("%s: deployment %+v, %v; it was %+v", c.name, have, err, had)
			}
			if err := b.stop(); err != nil && !errors.Is(err, workerid.ErrDeployment) {
				t.Error(err)
			}
		})
	}
}

// damage makes the record of number w unreadable.
func damage(t *testing.T, reg workerid.Registry, w int) {
	t.Helper()
	r, err := reg.Record(t.Context(), w)
	if err == nil {
		_, err = reg.Write(t.Context(), w, workerid.Record{Revision: r.Revision, Damaged: true})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestADeploymentReplacedByHandDoesNotServeBesideOldRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		a := start(t, m)
		time.Sleep(10 * time.Second)
		a.end()
		deploy(m, later)
		start(t, m, later).refused()
	})
}

// refused fails the test unless the keeper soon ends with ErrDeployment, and has no generator.
func (l *life) refused() {
	l.t.Helper()
	select {
	case err := <-l.err:
		if !errors.Is(err, workerid.ErrDeployment) || l.gen() != nil {
			l.t.Errorf("%v, generator %v, want ErrDeployment and none", err, l.gen())
		}
	case <-time.After(time.Minute):
		l.t.Errorf("it has not ended, generator %v", l.gen())
		l.end()
	}
}

// A registry may be wiped, and made again with another layout, while a number is being acquired.
func TestTheDeploymentIsReadAgainAfterANumberIsWon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		start(t, m, hooked(func(method string, call func() error) error {
			if method == "Write" {
				deploy(m, later)
			}
			return call()
		})).refused()
	})
}

func TestADamagedRecordIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		deploy(m)
		f := &workeridtest.Fake{Memory: m}
		for w := range 1024 {
			if w == 500 {
				continue
			}
			if _, err := f.Write(t.Context(), w, workerid.Record{Damaged: true}); err != nil {
				t.Fatal(err)
			}
		}
		l := start(t, m)
		if w := l.number(); w != 500 {
			t.Errorf("number %d was acquired, though its window is unknown", w)
		}
		l.raised(workerid.RegistryConflict)
		l.end()
	})
}

// A window that has passed is not extended: another worker may have had the
// number, and a restored registry shows the old token again.
func TestAWindowThatHasPassedIsNotExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		l := start(t, m, in(t.TempDir()))
		time.Sleep(10 * time.Second)
		w, g := l.number(), l.gen()
		l.reg.OnCall(func(string, func() error) error { return workeridtest.ErrInjected })
		time.Sleep(6 * time.Minute)
		l.reg.OnCall(nil)
		time.Sleep(10 * time.Second)
		if err := g.CheckAt(now()); !errors.Is(err, snowflake.ErrClosed) {
			t.Errorf("the old generator: %v, want it closed", err)
		}
		if wait := l.gen().From() - l.keeper.Status().Since; l.number() != w || wait < 1000 || l.issue().Tick == 0 {
			t.Errorf("number %d from %d ms after it was acquired, want %d again, after the margin", l.number(), wait, w)
		}
		l.raised()
		l.end()
	})
}

// The worker saw by its clock that the window was over, before it read the record.
func TestANumberThatAnotherWorkerTookMeanwhileRaisesTheAlarmOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		l := start(t, m)
		time.Sleep(10 * time.Second)
		w := l.number()
		l.reg.OnCall(func(string, func() error) error { return workeridtest.ErrInjected })
		time.Sleep(6 * time.Minute)
		other := &workeridtest.Fake{Memory: m}
		r, err := other.Record(t.Context(), w)
		if err != nil || r.Until > now() {
			t.Fatal(r, err)
		}
		r.Instance, r.Token, r.Until = "other", "foreign", now()+300_000
		if _, err := other.Write(t.Context(), w, r); err != nil {
			t.Fatal(err)
		}
		l.reg.OnCall(nil)
		time.Sleep(time.Minute)
		if l.number() == w {
			t.Errorf("two workers have number %d", w)
		}
		l.raised(workerid.NumberLost)
		l.end()
	})
}

// The records of a restored registry look free, though their owners were alive a moment ago.
func TestOnlyTheOwnReleasedNumberIsUsedWithoutTheMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := new(workeridtest.Memory), t.TempDir()
		one := func(c *workerid.Config) { c.Layout.Site, c.Layout.Worker, c.Layout.Sequence = 9, 1, 12 }
		foreign := workerid.Record{Token: "foreign", Until: 1, Deployment: deploy(m, one)}
		f := &workeridtest.Fake{Memory: m}
		for w := range 1024 {
			if _, err := f.Write(t.Context(), w, foreign); err != nil {
				t.Fatal(err)
			}
		}
		for life, margin := range []int64{1006, 0} {
			l := start(t, m, in(dir), one)
			begin := now()
			if from := l.gen().From() - begin; from != margin {
				t.Errorf("life %d: the window begins %d ms from now, want %d", life, from, margin)
			}
			time.Sleep(10 * time.Second)
			l.end()
			time.Sleep(4 * time.Second)
		}
	})
}

func TestAnEpochInTheFutureBlocksNoNumberAfterACleanStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		epoch := now() + 365*86400_000
		future := func(c *workerid.Config) { c.Layout.Epoch, c.Layout.Worker = epoch, 1 }
		deploy(m, future) // no worker whose clock is right makes one
		for range 5 {
			l := start(t, m, future)
			w := l.number()
			time.Sleep(10 * time.Second)
			l.end()
			if r, err := l.reg.Record(t.Context(), w); err != nil || r.Until > now() {
				t.Errorf("number %d is blocked for %d ms, %v", w, r.Until-now(), err)
			}
		}
	})
}

// What is damaged is not guessed, though the state file has a window.
func TestADamagedDeploymentIsRefusedAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := new(workeridtest.Memory), t.TempDir()
		a := start(t, m, in(dir))
		time.Sleep(time.Minute)
		a.crash(dir)
		b := start(t, m, in(dir), hooked(func(method string, call func() error) error {
			if method == "Deployment" {
				return workerid.ErrDamaged
			}
			return call()
		}))
		time.Sleep(20 * time.Second)
		if s := b.keeper.Status(); s.Held || !errors.Is(s.Trouble, workerid.ErrDamaged) {
			t.Errorf("%+v, want a refusal", s)
		}
		b.raised(workerid.RegistryConflict)
		b.end()
	})
}

// There may be no more numbers than workers, and their heartbeats take long to expire.
func TestAllNumbersAreUsedAgainAfterTheirRecordsAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, fleet := new(workeridtest.Memory), make([]*life, 4)
		for i := range fleet {
			fleet[i] = start(t, m, func(c *workerid.Config) {
				c.Layout.Worker, c.Numbers = 2, &workerid.Span{Last: 3}
			})
		}
		time.Sleep(time.Minute)
		m.WipeHistory()
		time.Sleep(10 * time.Second)
		for _, l := range fleet {
			if l.number(); l.issue().Tick == 0 {
				t.Errorf("%+v, want IDs", l.keeper.Status())
			}
			l.end()
		}
	})
}

// It would be recorded for good, and the right one refused.
func TestAnEpochInTheFutureIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		wrong := start(t, m, func(c *workerid.Config) { c.Layout.Epoch = c.Now() + 3600_000 })
		time.Sleep(10 * time.Second)
		_, err := wrong.reg.Deployment(t.Context())
		s := wrong.keeper.Status()
		if !errors.Is(err, workerid.ErrNoDeployment) || s.Held || !errors.Is(s.Trouble, workerid.ErrNoDeployment) {
			t.Errorf("recorded is %v, and the worker %+v", err, s)
		}
		wrong.end()
		right := start(t, m)
		time.Sleep(10 * time.Second)
		right.number()
		right.end()
	})
}
