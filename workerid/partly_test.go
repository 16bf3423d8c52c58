package workerid_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

// The calls to each bucket of a registry.
var (
	toHistory = []string{"Deployment", "Found", "Records", "Record", "Write"}
	toWorkers = []string{"Report", "Heartbeats", "Leave"} // the time has another source
)

// lose lets calls fail, at once or after a second, until the life has another hook.
func (l *life) lose(methods []string, hangs bool) {
	l.reg.OnCall(func(method string, call func() error) error {
		if !slices.Contains(methods, method) {
			return call()
		}
		if hangs {
			time.Sleep(time.Second)
		}
		return workeridtest.ErrInjected
	})
}

// calls counts the life's calls, by method, in the time d.
func (l *life) calls(d time.Duration, fail ...string) map[string]int {
	var mu sync.Mutex
	n := make(map[string]int)
	l.reg.OnCall(func(method string, call func() error) error {
		mu.Lock()
		defer mu.Unlock()
		n[method]++
		if slices.Contains(fail, method) {
			return workeridtest.ErrInjected
		}
		return call()
	})
	time.Sleep(d)
	l.reg.OnCall(nil)
	mu.Lock()
	defer mu.Unlock()
	return n
}

// Heartbeats stop nobody: without their bucket the window is renewed, also by a
// worker that was killed in that time and never read a heartbeat.
func TestWithoutHeartbeatsTheWindowIsRenewed(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, dir := new(workeridtest.Memory), t.TempDir()
			l := start(t, m, in(dir))
			time.Sleep(time.Minute + 50*time.Millisecond) // it is not killed while it renews: see resume
			w := l.number()
			l.lose(toWorkers, hangs)
			for minute := range 14 {
				time.Sleep(time.Minute)
				if s := l.keeper.Status(); l.number() != w || l.issue().Tick == 0 || s.Trouble == nil {
					t.Fatalf("minute %d: %+v, want IDs of number %d and a trouble", minute, s, w)
				}
				if minute == 7 {
					l.crash(dir)
					l = start(t, m, in(dir), func(c *workerid.Config) {
						(&life{reg: c.Registry.(*workeridtest.Fake)}).lose(toWorkers, hangs)
					})
				}
			}
			l.raised()
			l.reg.OnCall(nil)
			l.end()
		})
	}
}

// A window that the state file grants is used while the records have no leader,
// and renewed when they have one again.
func TestWithoutRecordsAnInheritedWindowIsUsed(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, dir := new(workeridtest.Memory), t.TempDir()
			a := start(t, m, in(dir))
			time.Sleep(time.Minute)
			w, fence := a.number(), fenceIn(t, dir)
			a.crash(dir)
			b := start(t, m, in(dir), func(c *workerid.Config) {
				(&life{reg: c.Registry.(*workeridtest.Fake)}).lose(toHistory, hangs)
			})
			if first := b.first(30 * time.Second); first < fence || first > fence+8000 || b.number() != w {
				t.Errorf("number %d is used %d ms after the fence, want %d within seconds", b.number(), first-fence, w)
			}
			time.Sleep(2 * time.Minute)
			if b.issue().Tick == 0 || b.keeper.Status().Trouble == nil {
				t.Errorf("%+v, want IDs and a trouble", b.keeper.Status())
			}
			b.reg.OnCall(nil)
			time.Sleep(7 * time.Minute)
			if b.number() != w || b.issue().Tick == 0 {
				t.Errorf("with the records back: %+v, want IDs of number %d", b.keeper.Status(), w)
			}
			b.end()
		})
	}
}

// A number that was just won is used as soon as its record can be read again.
func TestANumberIsUsedAsSoonAsItsRecordCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		l := start(t, m, func(c *workerid.Config) {
			r := c.Registry.(*workeridtest.Fake)
			looks, back := 0, time.Now().Add(700*time.Millisecond)
			r.OnCall(func(method string, call func() error) error {
				if method == "Deployment" {
					looks++ // the first two are before the number is held
				}
				if slices.Contains(toHistory, method) && looks > 2 && time.Now().Before(back) {
					return workeridtest.ErrInjected
				}
				return call()
			})
		})
		begin := now()
		if first := l.firstAfter(begin); first < 1000 || first > 2500 {
			t.Errorf("the first ID comes after %d ms: %+v", first, l.keeper.Status())
		}
		l.end()
	})
}

// After kill -9 a worker with coarse ticks is back within a tick and 3 s.
func TestAfterACrashAWorkerIsBackWithinATickAnd3s(t *testing.T) {
	for _, unit := range []int64{1, 1000, 10_000, 60_000} {
		t.Run(fmt.Sprint(unit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				coarse := func(c *workerid.Config) { c.Layout.Unit, c.Layout.Sequence, c.Horizon = unit, 4, time.Hour }
				m, dir := new(workeridtest.Memory), t.TempDir()
				l := start(t, m, coarse, in(dir))
				time.Sleep(time.Duration(4*unit) * time.Millisecond)
				for phase := range int64(4) {
					time.Sleep(20*time.Second + time.Duration(phase*unit/4+17*phase)*time.Millisecond)
					w, killed := l.number(), now()
					l.crash(dir)
					l = start(t, m, coarse, in(dir))
					for g := l.gen(); g == nil || g.CheckAt(now()) != nil; g = l.gen() {
						time.Sleep(time.Millisecond)
					}
					if took := now() - killed; took > 3000+unit || l.number() != w {
						t.Errorf("phase %d: number %d is back after %d ms, want %d", phase, l.number(), took, w)
					}
				}
				l.end()
				stopped := now()
				l = start(t, m, coarse, in(dir))
				for g := l.gen(); g == nil || g.CheckAt(now()) != nil; g = l.gen() {
					time.Sleep(time.Millisecond)
				}
				if took := now() - stopped; took > 100+unit {
					t.Errorf("after a clean stop it is back after %d ms", took)
				}
				l.end()
			})
		})
	}
}

// A clock that jitters within the tolerance costs no calls.
func TestAClockThatJittersCostsNoMoreCalls(t *testing.T) {
	for _, by := range []time.Duration{8 * time.Millisecond, 2 * time.Second} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := start(t, new(workeridtest.Memory))
				time.Sleep(time.Minute)
				stop, stopped := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(stopped)
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						case <-time.After(150 * time.Millisecond):
							l.set(time.Duration(i%2) * by)
						}
					}
				}()
				n, quiet := l.calls(time.Minute), 60/3
				if by > time.Second {
					quiet = 60 // once a second, to learn whether it is right
				}
				if n["Time"] > 2*quiet || n["Heartbeats"] > 2*quiet {
					t.Errorf("calls in a minute: %v, at rest there are %d heartbeats", n, 60/3)
				}
				close(stop)
				<-stopped
				l.set(0)
				time.Sleep(time.Minute)
				if l.issue().Tick == 0 {
					t.Errorf("%+v", l.keeper.Status())
				}
				l.end()
			})
		})
	}
}

// Lists of all heartbeats are seldom, also when they fail, and their failure is no
// trouble.
func TestHeartbeatsOfOthersAreReadSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, new(workeridtest.Memory))
		if n := l.calls(time.Hour)["Heartbeats"]; n < 5 || n > 30 {
			t.Errorf("%d lists in an hour", n)
		}
		if n := l.calls(time.Hour, "Heartbeats")["Heartbeats"]; n < 30 || n > 130 {
			t.Errorf("%d lists in an hour in which all fail", n)
		}
		if s := l.keeper.Status(); s.Trouble != nil {
			t.Errorf("%+v", s)
		}
		l.end()
	})
}

// The registry's clock was set while the others' heartbeats could not be listed: the next list shows that this
// worker's clock is right.
func TestAListIsReadSoonOnceListsWorkAgainIfTheClockNeedsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		a, b, l := start(t, m), start(t, m), start(t, m)
		time.Sleep(10 * time.Second)
		lists, failed := new(atomic.Int64), make(chan struct{}, 1000)
		l.reg.OnCall(func(method string, call func() error) error {
			if method != "Heartbeats" {
				return call()
			}
			lists.Add(1)
			failed <- struct{}{}
			return workeridtest.ErrInjected
		})
		time.Sleep(30 * time.Minute)
		m.Set(-5 * time.Second)
		before := lists.Load()
		time.Sleep(2 * time.Minute)
		if n := lists.Load() - before; n < 4 || n > 17 || l.keeper.Status().Trouble == nil {
			t.Errorf("%d lists that failed in 2 minutes, and %+v", n, l.keeper.Status())
		}
		for len(failed) > 0 {
			<-failed
		}
		<-failed
		l.reg.OnCall(nil)
		time.Sleep(27 * time.Second) // 23 s and a heartbeat
		if s := l.keeper.Status(); s.Trouble != nil {
			t.Errorf("27 s after the last list that failed: %v", s.Trouble)
		}
		for _, l := range []*life{a, b, l} {
			l.end()
		}
	})
}

// Renewals are synced to disk, one after the other: those of a fleet that started at once must not come at once.
func TestWorkersThatStartedAtOnceDoNotRenewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		deploy(m)
		fleet := make([]*life, 100)
		for i := range fleet {
			fleet[i] = start(t, m)
		}
		time.Sleep(70 * time.Second)
		writes, most, sum := new(atomic.Int64), int64(0), int64(0)
		for _, l := range fleet {
			l.reg.OnCall(func(method string, call func() error) error {
				if method == "Write" {
					writes.Add(1)
				}
				return call()
			})
		}
		for range 11 { // to 103 s
			time.Sleep(3 * time.Second)
			n := writes.Swap(0)
			most, sum = max(most, n), sum+n
		}
		if sum != 100 || most > 40 {
			t.Errorf("100 workers renewed %d times, and %d of them within 3 s", sum, most)
		}
		for _, l := range fleet {
			l.end()
		}
	})
}

// The registry takes one write of each worker in each turn: a renewal stands for the heartbeat. The heartbeats that are
// left follow one another in time for their expiry. Clock and deployment are compared in each third turn,
// and before each renewal.
func TestARenewalStandsForAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, new(workeridtest.Memory))
		time.Sleep(10*time.Second + 50*time.Millisecond)
		var mu sync.Mutex
		var compared time.Time
		n, last, gap := make(map[string]int), time.Now(), time.Duration(0)
		l.reg.OnCall(func(method string, call func() error) error {
			mu.Lock()
			switch n[method]++; method {
			case "Report":
				last, gap = time.Now(), max(gap, time.Since(last))
			case "Deployment":
				compared = time.Now()
			case "Write":
				if time.Since(compared) > time.Second {
					t.Errorf("a window grew %v after the deployment was read", time.Since(compared))
				}
			}
			mu.Unlock()
			return call()
		})
		time.Sleep(10 * time.Minute)
		l.reg.OnCall(nil)
		synctest.Wait()
		if n["Write"] < 5 || n["Report"]+n["Write"] != n["Record"] || n["Record"] < 195 {
			t.Errorf("calls in 10 minutes: %v", n)
		}
		if n["Time"] > n["Record"]*2/5 || n["Deployment"] > n["Record"]*2/5 {
			t.Errorf("calls in 10 minutes: %v, want two of three heartbeats to be brief", n)
		}
		if gap > 7*time.Second {
			t.Errorf("heartbeats %v apart", gap)
		}
		l.end()
	})
}

// A slow is a registry whose heartbeats hang on demand, until they time out.
type slow struct {
	*workeridtest.Fake
	hangs atomic.Bool
}

func (r *slow) Report(ctx context.Context, w int, h workerid.Heartbeat) error {
	if r.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return r.Fake.Report(ctx, w, h)
}

// A lost number closes its generator before anything else, also while the heartbeat hangs that is put
// beside the reading of the record.
func TestALostNumberIsClosedThoughItsHeartbeatHangs(t *testing.T) {
	for turn := range 3 {
		synctest.Test(t, func(t *testing.T) {
			m, reg := new(workeridtest.Memory), new(slow)
			l := start(t, m, func(c *workerid.Config) {
				reg.Fake = c.Registry.(*workeridtest.Fake)
				c.Registry = reg
			})
			time.Sleep(time.Minute + time.Duration(turn)*3*time.Second)
			g, read := l.gen(), make(chan struct{})
			l.reg.OnCall(func(method string, call func() error) error {
				if method == "Record" && reg.hangs.Load() {
					l.reg.OnCall(nil)
					defer close(read)
				}
				return call()
			})
			reg.hangs.Store(true)
			m.WipeHistory()
			<-read
			time.Sleep(100 * time.Millisecond)
			if err := g.CheckAt(now()); !errors.Is(err, snowflake.ErrClosed) {
				t.Errorf("turn %d: the generator of the lost number: %v, want it closed", turn, err)
			}
			reg.hangs.Store(false)
			time.Sleep(time.Minute)
			l.raised(workerid.NumberLost)
			l.end()
		})
	}
}

// A worker that finds no number asks seldom.
func TestAWorkerWithoutANumberAsksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		two := func(c *workerid.Config) { c.Layout.Worker = 1 }
		a, b := start(t, m, two), start(t, m, two)
		time.Sleep(time.Minute)
		c := start(t, m, two)
		time.Sleep(time.Minute)
		if n := c.calls(10 * time.Minute)["Records"]; n < 12 || n > 32 {
			t.Errorf("%d looks in 10 min, want about 20", n)
		}
		a.end()
		b.end()
		c.end()
	})
}

// Heartbeats stop nobody: a worker that never had a number acquires one by the records alone. The record of an owner
// that answers nothing may be lost: the number is used once that one has read its record again.
func TestWithoutHeartbeatsANumberIsAcquiredByItsRecord(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := new(workeridtest.Memory)
			two := func(c *workerid.Config) { c.Layout.Worker = 1 } // numbers
			a := start(t, m, two)
			time.Sleep(time.Minute)
			begin := now()
			b := start(t, m, two, func(c *workerid.Config) {
				(&life{reg: c.Registry.(*workeridtest.Fake)}).lose(toWorkers, hangs)
			})
			serves := func() bool { g := b.gen(); return g != nil && g.CheckAt(now()) == nil }
			for !serves() && now() < begin+60_000 {
				time.Sleep(time.Millisecond)
			}
			if first := now() - max(begin+10_000, b.keeper.Status().Since); first < 7000 || first > 9000 {
				t.Errorf("the number is used after %d ms: %+v", first, b.keeper.Status())
			}
			if took := now() - begin; took > 45_000 {
				t.Errorf("it took %d ms", took)
			}
			for minute := range 10 {
				time.Sleep(time.Minute)
				if s := b.keeper.Status(); b.number() == a.number() || !serves() || s.Trouble == nil {
					t.Fatalf("minute %d: %+v, want IDs of another number than %d, and a trouble", minute, s, a.number())
				}
			}
			b.reg.OnCall(nil)
			a.end()
			b.end()
		})
	}
}
