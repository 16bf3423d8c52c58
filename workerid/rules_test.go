package workerid_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

func named(c *workerid.Config) { c.Instance = "one" }

func TestASecondEventIsASecondAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		l := start(t, m)
		time.Sleep(time.Minute + 50*time.Millisecond) // between two looks at the clock
		for range 2 {
			l.set(time.Hour)
			time.Sleep(time.Minute)
			l.raised(workerid.ClockStep, workerid.ClockSkew)
			l.set(0)
			time.Sleep(time.Minute)
			l.raised()
		}
		l.issue()
		for hours := range 2 {
			back := -time.Duration(hours+1) * time.Hour
			m.Set(back)
			l.set(back)
			time.Sleep(time.Minute)
			l.raised(workerid.ClockStep, workerid.ClockBehind)
			if l.issue().Tick == 0 {
				t.Errorf("%+v", l.keeper.Status())
			}
			l.raised()
		}
		l.end()
	})
}

// A worker's last report is the latest of three traces.
func TestEachTraceOfAWorkersPastShowsThatItsClockIsBehind(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(m *workeridtest.Memory, w int, change *[]func(*workerid.Config))
		back   time.Duration
		behind bool
	}{
		"the fence": {func(m *workeridtest.Memory, w int, _ *[]func(*workerid.Config)) {
			m.Expire(w)
		}, 20 * time.Second, true},
		"the heartbeat": {func(_ *workeridtest.Memory, _ int, c *[]func(*workerid.Config)) {
			*c = append(*c, in(t.TempDir()))
		}, 20 * time.Second, true},
		"the record": {func(m *workeridtest.Memory, w int, c *[]func(*workerid.Config)) {
			m.Expire(w)
			*c = append(*c, in(t.TempDir()))
		}, 5 * time.Minute, true},
		"nothing": {func(m *workeridtest.Memory, w int, c *[]func(*workerid.Config)) {
			m.Expire(w)
			*c = append(*c, in(t.TempDir()), func(c *workerid.Config) { c.Instance = "other" })
		}, 5 * time.Minute, false},
		"an older record": {func(m *workeridtest.Memory, w int, c *[]func(*workerid.Config)) {
			// It was far ahead once; its later writes are right.
			m.Expire(w)
			f := &workeridtest.Fake{Memory: m}
			r, err := f.Record(t.Context(), w)
			if err != nil {
				t.Error(err)
			}
			r.Reported += 3600_000
			_, err = f.Write(t.Context(), w, r)
			if err == nil {
				later := workerid.Record{Instance: "one", Token: "t", Reported: 1, Deployment: r.Deployment}
				_, err = f.Write(t.Context(), (w+1)%1024, later)
			}
			if err != nil {
				t.Error(err)
			}
			*c = append(*c, in(t.TempDir()))
		}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, dir := new(workeridtest.Memory), t.TempDir()
				a := start(t, m, named, in(dir))
				time.Sleep(80 * time.Second) // 80 s after the last write of the record
				w := a.number()
				a.crash(dir)
				changes := []func(*workerid.Config){named, in(dir)}
				c.spoil(m, w, &changes)
				m.Set(-c.back)
				b := start(t, m, append(changes, off(-c.back))...)
				time.Sleep(4 * time.Second)
				var want []workerid.Alarm
				if c.behind {
					want = append(want, workerid.ClockBehind)
				}
				b.raised(want...)
				b.end()
			})
		})
	}
}

func TestAWorkersOwnHeartbeatIsNoVoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		f := &workeridtest.Fake{Memory: m}
		for w := range 3 {
			h := workerid.Heartbeat{Instance: "one", Time: now() + 86400_000}
			if err := f.Report(t.Context(), w, h); err != nil {
				t.Fatal(err)
			}
			// An unreadable one has no time.
			if err := f.Report(t.Context(), 3+w, workerid.Heartbeat{}); err != nil {
				t.Fatal(err)
			}
		}
		l := start(t, m, named, off(24*time.Hour))
		time.Sleep(10 * time.Second)
		if s := l.keeper.Status(); s.Held {
			t.Errorf("%+v, want a refusal", s)
		}
		l.end()
		r := start(t, m, named)
		r.number()
		r.end()
	})
}

func TestAStateFileOfAnotherRegistryIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		a := start(t, new(workeridtest.Memory), in(dir))
		time.Sleep(10 * time.Second)
		a.crash(dir)
		// The other registry refuses all writes, so no number is acquired there.
		other := new(workeridtest.Memory)
		b := start(t, other, in(dir), hooked(failing(false, "Write")))
		time.Sleep(5 * time.Second)
		b.crash(dir)
		c := start(t, other, in(dir), away(false))
		time.Sleep(10 * time.Second)
		if s := c.keeper.Status(); s.Held {
			t.Errorf("%+v: the window was another registry's", s)
		}
		c.end()
	})
}

func TestAWrongClockDoesNotMoveTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := start(t, new(workeridtest.Memory), in(dir))
		time.Sleep(time.Minute)
		l.set(time.Minute)
		time.Sleep(150 * time.Millisecond)
		fence := fenceIn(t, dir)
		time.Sleep(20 * time.Second)
		if moved := fenceIn(t, dir) - fence; moved != 0 {
			t.Errorf("the fence moved by %d ms", moved)
		}
		l.end()
	})
}

// A burst puts a generator one tick ahead; the clock was not set back.
func TestABurstOfCoarseTicksIsNoStep(t *testing.T) {
	for _, unit := range []int64{1, 10, 1000, 2000} {
		t.Run(fmt.Sprint(unit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := start(t, new(workeridtest.Memory), in(t.TempDir()), func(c *workerid.Config) {
					c.Layout.Unit, c.Layout.Sequence = unit, 2
				})
				time.Sleep(20 * time.Second)
				w, waits := l.number(), 0
				for range 600 {
					for {
						if _, err := l.gen().NextAt(l.now(), 1); err != nil {
							break
						}
					}
					if _, err := l.gen().NextAt(l.now(), 1); errors.Is(err, snowflake.ErrWindow) {
						waits++
					}
					time.Sleep(100 * time.Millisecond)
				}
				if l.number() != w || waits > 0 {
					t.Errorf("number %d, was %d; %d times the fence was in the way", l.number(), w, waits)
				}
				l.raised()
				l.end()
			})
		})
	}
}
