package workerid_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

// off makes a life begin with a clock that is slip off true time.
func off(slip time.Duration) func(*workerid.Config) {
	return func(c *workerid.Config) {
		c.Now = func() int64 { return time.Now().Add(slip).UnixMilli() }
	}
}

// record returns the record of number w.
func (l *life) record(w int) workerid.Record {
	l.t.Helper()
	l.reg.OnCall(nil)
	r, err := l.reg.Record(l.t.Context(), w)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// end stops the life and fails the test if that is not clean.
func (l *life) end() {
	l.t.Helper()
	if err := l.stop(); err != nil {
		l.t.Error(err)
	}
}

func TestAWrongClockIsRefusedAtStartBeforeAnythingIsWritten(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, slip := range []time.Duration{-1100 * time.Millisecond, 1100 * time.Millisecond, -year, year} {
		synctest.Test(t, func(t *testing.T) {
			m := new(workeridtest.Memory)
			l := start(t, m, off(slip), hooked(func(method string, call func() error) error {
				if method == "Write" || method == "Deployment" || method == "Report" {
					t.Errorf("%v off: %s was called", slip, method)
				}
				return call()
			}))
			time.Sleep(time.Minute)
			if s := l.keeper.Status(); s.Held || s.Trouble == nil {
				t.Errorf("%v off: %+v, want a refusal", slip, s)
			}
			l.raised(workerid.ClockSkew)
			l.end()
		})
	}
}

// The median counts, with the registry as one voice: a single wrong clock changes nothing, not even the registry's.
func TestClocksAreComparedWithTheMedianOfTheOthers(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		registry time.Duration
		others   []time.Duration
		own      time.Duration
		ok       bool
	}{
		{0, nil, 900 * time.Millisecond, true},
		{0, nil, 1100 * time.Millisecond, false},
		// Alone with a wrong registry, a worker cannot know which of the two is wrong.
		{time.Hour, nil, 0, false},
		// The registry is outvoted, although it agrees with this worker.
		{time.Hour, []time.Duration{0, 0}, 0, true},
		{time.Hour, []time.Duration{0, 0}, time.Hour, false},
		// A mean would accept it, or refuse those that are right.
		{0, []time.Duration{0, 0, day}, day, false},
		{0, []time.Duration{0, 0, day}, 0, true},
		// Of two workers the one that agrees with the registry is right; one between the two is not, nor is the other.
		{0, []time.Duration{day}, 0, true},
		{0, []time.Duration{day}, time.Hour, false},
		{0, []time.Duration{0}, day, false},
		{-time.Minute, []time.Duration{0, 0, 0, day}, day, false},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := new(workeridtest.Memory)
				m.Set(c.registry)
				for i, slip := range c.others {
					f := &workeridtest.Fake{Memory: m}
					h := workerid.Heartbeat{Instance: fmt.Sprint("other", i), Time: time.Now().Add(slip).UnixMilli()}
					if err := f.Report(t.Context(), i, h); err != nil {
						t.Fatal(err)
					}
				}
				l := start(t, m, off(c.own))
				time.Sleep(10 * time.Second)
				if s := l.keeper.Status(); s.Held != c.ok {
					t.Errorf("%+v, want held: %t", s, c.ok)
				}
				l.end()
			})
		})
	}
}

// Two of three heartbeats do not compare the clock, but that is while it was not set.
func TestTheHeartbeatAfterAStepComparesTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, new(workeridtest.Memory))
		time.Sleep(time.Minute)
		for i := range 6 {
			synctest.Wait() // for a heartbeat of this moment
			l.set(time.Duration(i+1) * 100 * time.Millisecond)
			if n := l.calls(3100 * time.Millisecond); n["Time"] == 0 || n["Record"] == 0 {
				t.Errorf("step %d: calls in the heartbeat after it: %v", i, n)
			}
		}
		l.raised(workerid.ClockStep, workerid.ClockStep, workerid.ClockStep, workerid.ClockStep, workerid.ClockStep,
			workerid.ClockStep)
		l.end()
	})
}

func TestAStepWithinMaxAheadCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, new(workeridtest.Memory))
		time.Sleep(time.Minute + 50*time.Millisecond)
		l.set(-5 * time.Millisecond)
		for range 1000 {
			if l.issue().Tick == 0 {
				t.Fatal("nothing is issued")
			}
			time.Sleep(10 * time.Millisecond)
		}
		l.raised()
		l.end()
	})
}

// Between MaxAhead and the skew the number is kept, and nothing issued until the clock has caught up.
func TestAShortStepBackIsWaitedOutWithTheSameNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, new(workeridtest.Memory))
		time.Sleep(time.Minute + 50*time.Millisecond)
		w, p := l.number(), l.issue()
		l.set(-900 * time.Millisecond)
		if l.issue().Tick != 0 {
			t.Error("an ID was issued from a clock 900 ms behind")
		}
		time.Sleep(901 * time.Millisecond)
		if q := l.issue(); l.number() != w || q.Tick < p.Tick {
			t.Errorf("number %d, was %d; tick %d after %d", l.number(), w, q.Tick, p.Tick)
		}
		l.raised(workerid.ClockStep)
		l.end()
	})
}

func TestAClockSetFarStopsIssuingAtOnceAndServesAgainWhenRight(t *testing.T) {
	for _, slip := range []time.Duration{-time.Hour, time.Hour, -10 * 365 * 24 * time.Hour, 10 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			l := start(t, new(workeridtest.Memory), in(t.TempDir()))
			time.Sleep(time.Minute + 50*time.Millisecond)
			w, p := l.number(), l.issue()
			l.set(slip)
			time.Sleep(201 * time.Millisecond)
			if g := l.gen(); g != nil {
				t.Errorf("%v: issuing goes on 200 ms after the step", slip)
			}
			time.Sleep(time.Minute)
			if l.number() != w {
				t.Errorf("%v: the number is not kept", slip)
			}
			l.raised(workerid.ClockStep, workerid.ClockSkew)
			if until := l.record(w).Until; until > now()+5*60_000 {
				t.Errorf("%v: the wrong clock moved the window to %d ms from now", slip, until-now())
			}
			l.set(0)
			time.Sleep(500 * time.Millisecond)
			if q := l.issue(); l.number() != w || q.Tick <= p.Tick {
				t.Errorf("%v: number %d, was %d; tick %d after %d", slip, l.number(), w, q.Tick, p.Tick)
			}
			l.raised() // one event, and it is over
			l.end()
		})
	}
}

// Whichever reading is the first that is wrong, a clock that was set back was set, and is not behind its IDs.
func TestAClockSetBackBetweenTwoReadingsIsNotBehind(t *testing.T) {
	for nth := range 6 {
		synctest.Test(t, func(t *testing.T) {
			var left atomic.Int64 // readings until the clock is set back; negative: it was
			left.Store(1 << 62)
			l := start(t, new(workeridtest.Memory), in(t.TempDir()), func(c *workerid.Config) {
				c.Now = func() int64 {
					if left.Add(-1) < 0 {
						return time.Now().Add(-time.Hour).UnixMilli()
					}
					return time.Now().UnixMilli()
				}
			})
			time.Sleep(time.Minute + 50*time.Millisecond)
			l.issue()
			left.Store(int64(nth))
			time.Sleep(10 * time.Second)
			l.raised(workerid.ClockStep, workerid.ClockSkew)
			l.end()
		})
	}
}

// A clock that was set back together with the registry's is right, but behind the issued IDs.
func TestARightClockBehindItsIDsTakesAnotherNumberAtTheSecondHeartbeat(t *testing.T) {
	for _, c := range []struct {
		back    time.Duration
		another bool
	}{
		{2500 * time.Millisecond, false},
		{time.Hour, true},
		{25 * time.Hour, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, dir := new(workeridtest.Memory), t.TempDir()
			// A fleet's numbers have records.
			longer := func(c *workerid.Config) { c.Layout.Epoch -= 30 * 86400_000 }
			d := deploy(m, longer)
			for w := range 1024 {
				r := workerid.Record{Token: "old", Instance: "old", Until: 1, Deployment: d}
				if _, err := (&workeridtest.Fake{Memory: m}).Write(t.Context(), w, r); err != nil {
					t.Fatal(err)
				}
			}
			l := start(t, m, in(dir), longer)
			time.Sleep(time.Minute + 50*time.Millisecond)
			w := l.number()
			l.issue()
			m.Set(-c.back)
			l.set(-c.back)
			for begin := time.Now(); time.Since(begin) < 2490*time.Millisecond; time.Sleep(10 * time.Millisecond) {
				if l.number() != w || l.issue().Tick != 0 {
					t.Fatalf("back by %v, %v later: %+v, want number %d, and no ID",
						c.back, time.Since(begin), l.keeper.Status(), w)
				}
			}
			time.Sleep(6 * time.Second) // more than the rest, a heartbeat and the margin
			if another := l.number() != w; another != c.another || l.issue().Tick == 0 {
				t.Errorf("back by %v: another number: %t, want %t; and IDs", c.back, another, c.another)
			}
			time.Sleep(time.Minute)
			want := []workerid.Alarm{workerid.ClockStep, workerid.ClockBehind}
			if !c.another {
				want = want[:1]
			}
			l.raised(want...)
			l.end()
		})
	}
}

func TestAClockBehindTheLastReportWaitsOrTakesAnotherNumberAtStart(t *testing.T) {
	for _, c := range []struct {
		name    string
		back    time.Duration
		clean   bool
		another bool
	}{
		{"a little, after a crash", 4 * time.Second, false, false},
		{"a little, after a clean stop", 4 * time.Second, true, false},
		{"an hour, after a crash", time.Hour, false, true},
		{"an hour, after a clean stop", time.Hour, true, true},
		{"a year", 365 * 24 * time.Hour, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, dir := new(workeridtest.Memory), t.TempDir()
				a := start(t, m, in(dir), named)
				time.Sleep(10 * time.Minute)
				w := a.number()
				if c.clean {
					a.end()
				} else {
					a.crash(dir)
				}
				m.Set(-c.back)
				wide := func(cfg *workerid.Config) { cfg.MaxClockSkew = 5 * time.Second }
				b := start(t, m, in(dir), named, off(-c.back), wide)
				time.Sleep(500 * time.Millisecond)
				b.raised(workerid.ClockBehind)
				if s := b.keeper.Status(); s.Held != c.another || b.issue().Tick != 0 {
					t.Errorf("%+v, want another number: %t, and no ID yet", s, c.another)
				}
				time.Sleep(8 * time.Second)
				if s := b.keeper.Status(); !s.Held || (s.Number != w) != c.another {
					t.Errorf("%+v; want another number than %d: %t", s, w, c.another)
				}
				b.end()
				b.raised()
				// It is over: the next start is normal.
				d := start(t, m, in(dir), named, off(-c.back))
				d.number()
				d.raised()
				d.end()
			})
		})
	}
}

// A registry whose clock is set proves nothing about clocks that kept time: the
// others' heartbeats need a moment to show it.
func TestARegistryWhoseClockIsSetStopsNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		var lives []*life
		for range 3 {
			lives = append(lives, start(t, m))
			time.Sleep(700 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		for _, slip := range []time.Duration{time.Hour, -time.Hour, 0} {
			m.Set(slip)
			for range 300 {
				time.Sleep(100 * time.Millisecond)
				for i, l := range lives {
					if l.issue().Tick == 0 {
						t.Fatalf("worker %d issues nothing: %+v", i, l.keeper.Status())
					}
				}
			}
		}
		for _, l := range lives {
			l.raised()
			l.end()
		}
	})
}

func TestASlowDriftIsRefusedEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		a, b := start(t, m), start(t, m)
		time.Sleep(time.Minute)
		for ms := range 1500 {
			b.set(time.Duration(ms) * time.Millisecond)
			time.Sleep(50 * time.Millisecond) // 2 %
		}
		time.Sleep(15 * time.Second)
		if b.issue().Tick != 0 {
			t.Error("a clock 1.5 s ahead issues")
		}
		if a.issue().Tick == 0 {
			t.Errorf("the clock that is right does not issue: %+v", a.keeper.Status())
		}
		b.raised(workerid.ClockSkew)
		a.raised()
		a.end()
		b.end()
	})
}

func TestTheEndOfTimeIsAlarmedOnceFiveYearsAhead(t *testing.T) {
	for _, c := range []struct {
		bits int
		want []workerid.Alarm
	}{{41, nil}, {37, []workerid.Alarm{workerid.TimeEnds}}} { // 69 years, 4.4 years
		synctest.Test(t, func(t *testing.T) {
			l := start(t, new(workeridtest.Memory), func(cfg *workerid.Config) { cfg.Layout.Time = c.bits })
			time.Sleep(time.Hour)
			l.raised(c.want...)
			l.end()
		})
	}
}
