package workerid_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

// The calls to each bucket of a registry.
var (
	toHistory = []string{"Deployment", "Found", "Records", "Record", "Write"}
	toWorkers = []string{"Report", "Heartbeats", "Leave"} // the time has another source
)

// failing returns a hook that lets calls of some methods fail: at once, or after a second.
func failing(hangs bool, methods ...string) func(string, func() error) error {
	return func(method string, call func() error) error {
		if !slices.Contains(methods, method) {
			return call()
		}
		if hangs {
			time.Sleep(time.Second)
		}
		return workeridtest.ErrInjected
	}
}

// hooked makes a life begin with a hook for the calls to its registry.
func hooked(hook func(string, func() error) error) func(*workerid.Config) {
	return func(c *workerid.Config) { c.Registry.(*workeridtest.Fake).OnCall(hook) }
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
			l.reg.OnCall(failing(hangs, toWorkers...))
			for minute := range 14 {
				time.Sleep(time.Minute)
				if s := l.keeper.Status(); l.number() != w || l.issue().Tick == 0 || s.Trouble == nil {
					t.Fatalf("minute %d: %+v, want IDs of number %d and a trouble", minute, s, w)
				}
				if minute == 7 {
					l.crash(dir)
					l = start(t, m, in(dir), hooked(failing(hangs, toWorkers...)))
				}
			}
			l.raised()
			l.reg.OnCall(nil)
			l.end()
		})
	}
}

// A window that the state file grants is used while the records have no leader, and renewed when they have one again.
func TestWithoutRecordsAnInheritedWindowIsUsed(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, dir := new(workeridtest.Memory), t.TempDir()
			a := start(t, m, in(dir))
			time.Sleep(time.Minute)
			w, fence := a.number(), fenceIn(t, dir)
			a.crash(dir)
			b := start(t, m, in(dir), hooked(failing(hangs, toHistory...)))
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

// Lists of all heartbeats are seldom, also when they fail, and their failure is no trouble.
func TestHeartbeatsOfOthersAreReadSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, new(workeridtest.Memory))
		if n := l.calls(time.Hour)["Heartbeats"]; n < 5 || n > 30 {
			t.Errorf("%d lists in an hour", n)
		}
		if n := l.calls(time.Hour, "Heartbeats")["Heartbeats"]; n < 5 || n > 30 {
			t.Errorf("%d lists in an hour in which all fail", n)
		}
		if s := l.keeper.Status(); s.Trouble != nil {
			t.Errorf("%+v", s)
		}
		l.end()
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
