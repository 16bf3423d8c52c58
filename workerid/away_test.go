package workerid_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

// away keeps the registry out of reach: its calls fail at once, or hang until
// they time out. Only the question who has a number takes another path.
func away(hangs bool) func(*workerid.Config) {
	return hooked(failing(hangs, append(slices.Concat(toHistory, toWorkers), "Time")...))
}

// first waits for the first ID and returns the time of its tick, Unix ms; 0 if there is none within d.
func (l *life) first(d time.Duration) int64 {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if p := l.issue(); p.Tick != 0 {
			return layout.FirstMs(p.Tick)
		}
	}
	return 0
}

func TestWithTheRegistryAwayAtStartNothingElseServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			clean   bool
			between time.Duration
			change  func(m *workeridtest.Memory, w int) func(*workerid.Config)
		}{
			"no state file": {change: func(*workeridtest.Memory, int) func(*workerid.Config) { return in("") }},
			"another directory": {change: func(*workeridtest.Memory, int) func(*workerid.Config) {
				return in(t.TempDir())
			}},
			"after a clean stop": {clean: true},
			"after the window":   {between: time.Hour},
			"another layout": {change: func(*workeridtest.Memory, int) func(*workerid.Config) {
				return func(c *workerid.Config) { c.Layout.Epoch++ }
			}},
			"a clock behind the file": {change: func(*workeridtest.Memory, int) func(*workerid.Config) {
				return off(-time.Minute)
			}},
			"another worker answers": {change: func(m *workeridtest.Memory, w int) func(*workerid.Config) {
				m.Answer(w, workerid.Who{Instance: "other", Process: "other"})
				return func(*workerid.Config) {}
			}},
		} {
			m, dir := new(workeridtest.Memory), t.TempDir()
			a := start(t, m, in(dir))
			time.Sleep(time.Minute)
			w := a.number()
			if c.clean {
				a.end()
			} else {
				a.crash(dir)
			}
			time.Sleep(c.between)
			change := func(*workerid.Config) {}
			if c.change != nil {
				change = c.change(m, w)
			}
			b := start(t, m, in(dir), away(false), change)
			time.Sleep(20 * time.Second)
			if s := b.keeper.Status(); s.Held || s.Trouble == nil {
				t.Errorf("%s: %+v, want no number and the reason", name, s)
			}
			b.end()
		}
	})
}

func TestADamagedStateFileIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		cut := []byte(`{"instance":"a","number":7,"cl`)
		if err := os.WriteFile(filepath.Join(dir, "worker.json"), cut, 0o600); err != nil {
			t.Fatal(err)
		}
		l := start(t, new(workeridtest.Memory), in(dir))
		time.Sleep(time.Minute)
		l.number()
		l.raised(workerid.StateFile)
		l.end()
	})
}

// A disk that fails or hangs costs the number, not the service.
func TestADiskThatFailsOrHangsCostsTheNumberOnly(t *testing.T) {
	for name, fail := range map[string]func() error{
		"full":  func() error { return errors.New("no space left on device") },
		"hangs": func() error { time.Sleep(time.Hour); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := new(disk)
				l := d.start(t, new(workeridtest.Memory))
				w, g, breaks := l.number(), l.gen(), now()
				d.breaks(fail)
				for l.gen() == g {
					if p := l.issue(); p.Tick != 0 && layout.FirstMs(p.Tick) > breaks+3001 {
						t.Fatal("an ID was issued more than 3 s beyond the last fence")
					}
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(5 * time.Second)
				if !errors.Is(g.CheckAt(now()), snowflake.ErrClosed) || l.number() == w || l.issue().Tick == 0 {
					t.Errorf("%+v, want another number than %d to serve", l.keeper.Status(), w)
				}
				l.raised(workerid.StateFile)
				l.end() // at once, though the disk hangs
				if took := time.Duration(now()-breaks) * time.Millisecond; took > 20*time.Second {
					t.Errorf("it took %v in all", took)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestWhenAllNumbersAreInUseTheFirstFreeOneIsAcquired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		two := func(c *workerid.Config) {
			c.Layout.Worker, c.Horizon, c.Numbers = 1, time.Minute, &workerid.Span{Last: 1}
		}
		a, b := start(t, m, two), start(t, m, two)
		time.Sleep(30 * time.Second)
		c := start(t, m, two)
		time.Sleep(10 * time.Second)
		if s := c.keeper.Status(); s.Held || !errors.Is(s.Trouble, workerid.ErrExhausted) {
			t.Errorf("%+v, want ErrExhausted", s)
		}
		c.raised(workerid.NumbersExhausted)
		w, until := a.number(), a.keeper.Status().Until
		a.crash(t.TempDir())
		m.Expire(w)
		for !c.keeper.Status().Held {
			time.Sleep(10 * time.Millisecond)
			if late := now() - until; late > 8000 {
				t.Fatalf("not acquired %d ms after it was free", late)
			}
		}
		c.raised()
		c.end()
		b.end()
	})
}
