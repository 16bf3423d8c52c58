package workerid_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

func TestSixtyFourWorkersAtOnceGetDifferentNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		seen := make(map[int]bool)
		var lives []*life
		for range 64 {
			lives = append(lives, start(t, m))
		}
		time.Sleep(time.Second)
		for _, l := range lives {
			if w := l.number(); seen[w] {
				t.Errorf("number %d twice", w)
			} else {
				seen[w] = true
			}
		}
		for _, l := range lives {
			if err := l.stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestTheWindowClosesByItselfWhenRenewalsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, new(workeridtest.Memory), func(c *workerid.Config) { c.Horizon = time.Minute })
		time.Sleep(10 * time.Minute) // renewed all along
		if l.issue().Tick == 0 {
			t.Fatalf("nothing is issued: %v", l.keeper.Status())
		}
		w, until := l.number(), l.keeper.Status().Until
		if left := until - now(); left < 39_000 || left > 60_000 {
			t.Errorf("the window reaches %d ms ahead, want two thirds of the horizon at least", left)
		}
		l.reg.OnCall(func(string, func() error) error { return workeridtest.ErrInjected })
		last := int64(0)
		for range 70 * 10 {
			if p := l.issue(); p.Tick != 0 {
				last = layout.FirstMs(p.Tick)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if last >= until || last < until-200 {
			t.Errorf("the last ID was issued %d ms before the window's end", until-last)
		}
		if l.keeper.Status().Trouble == nil {
			t.Error("the status names no trouble")
		}
		l.reg.OnCall(nil)
		time.Sleep(11 * time.Second)
		if p := l.issue(); p.Tick == 0 || p.Worker != w {
			t.Errorf("once the registry was back: %+v, want IDs of number %d again", p, w)
		}
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestACleanStopFreesTheNumberAndTheNextLifeAcquiresIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := new(workeridtest.Memory), t.TempDir()
		var last snowflake.Parts
		w := -1
		for i := range 5 {
			l := start(t, m, in(dir))
			if w >= 0 && l.number() != w {
				t.Errorf("life %d has number %d, want %d back", i, l.number(), w)
			}
			w = l.number()
			time.Sleep(2 * time.Second)
			p := l.issue()
			if p.Tick <= last.Tick {
				t.Errorf("life %d issued tick %d after %d", i, p.Tick, last.Tick)
			}
			last = p
			g := l.gen()
			l.reg.OnCall(func(method string, call func() error) error {
				if method == "Write" {
					// In the order of the law: closed, then forgotten, then freed.
					if err := g.CheckAt(now()); !errors.Is(err, snowflake.ErrClosed) {
						t.Errorf("released with the generator open: %v", err)
					}
					if s, _ := os.ReadFile(filepath.Join(dir, "worker.json")); claimIn(t, s) {
						t.Error("released with the claim in the state file")
					}
				}
				return call()
			})
			if err := l.stop(); err != nil {
				t.Fatal(err)
			}
			r, err := l.reg.Record(t.Context(), w)
			if err != nil || r.Until != layout.FirstMs(p.Tick)+1 {
				t.Errorf("after the stop until is %d, %v, want one tick after the last ID", r.Until-now(), err)
			}
		}
		if l := start(t, m, in(t.TempDir())); l.stop() != nil {
			t.Error("stop failed")
		}
	})
}

// fenceIn returns the fence in the state file.
func fenceIn(t *testing.T, dir string) int64 {
	t.Helper()
	var s struct{ Claim struct{ Fence int64 } }
	file, err := os.ReadFile(filepath.Join(dir, "worker.json"))
	if err == nil {
		err = json.Unmarshal(file, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.Claim.Fence
}

func claimIn(t *testing.T, file []byte) bool {
	t.Helper()
	var s map[string]any
	if err := json.Unmarshal(file, &s); err != nil {
		t.Fatal(err)
	}
	return s["claim"] != nil
}

func TestAfterACrashTheNumberIsResumedAboveTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := new(workeridtest.Memory), t.TempDir()
		w, before := -1, int64(0) // the fence that the last life left behind
		for i := range 5 {
			l := start(t, m, in(dir))
			if w >= 0 && l.number() != w {
				t.Errorf("life %d has number %d, want %d back", i, l.number(), w)
			}
			w = l.number()
			why := l.keeper.Status().Trouble
			if again := strings.Contains(fmt.Sprint(why), "did not stop cleanly"); why == nil || again != (i > 0) {
				t.Errorf("life %d does not use its number yet: %v", i, why)
			}
			issued := 0
			for range 8000 {
				if p := l.issue(); p.Tick != 0 {
					issued++
					ms := layout.FirstMs(p.Tick)
					if ms < before {
						t.Fatalf("life %d issued a tick %d ms before the fence of the one before", i, before-ms)
					}
					if issued%50 == 0 && ms >= fenceIn(t, dir) {
						t.Fatalf("life %d issued a tick %d ms beyond the fence on disk", i, ms-fenceIn(t, dir))
					}
				}
				time.Sleep(time.Millisecond)
			}
			if issued < 4500 {
				t.Errorf("life %d issued %d IDs in 8 s, want all but the 3 s of the fence", i, issued)
			}
			before = fenceIn(t, dir)
			l.crash(dir)
		}
	})
}

func TestAskingThatFailsIsReportedAsSuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deny := func(c *workerid.Config) {
			c.Registry.(*workeridtest.Fake).OnCall(func(method string, call func() error) error {
				if method == "Ask" {
					time.Sleep(time.Second)
					return workeridtest.ErrInjected
				}
				return call()
			})
		}
		l := start(t, new(workeridtest.Memory), deny)
		time.Sleep(10 * time.Second)
		if s := l.keeper.Status(); s.Held || !errors.Is(s.Trouble, workeridtest.ErrInjected) {
			t.Errorf("%+v, want the reason within seconds", s)
		}
		l.reg.OnCall(nil)
		time.Sleep(10 * time.Second)
		l.number()
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestWithoutAStateFileACrashedNumberStaysBlockedForTheHorizon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		two := func(c *workerid.Config) {
			c.Layout = snowflake.Layout{Time: 41, Worker: 1, Sequence: 12, Epoch: layout.Epoch, Unit: 1}
		}
		a, b := start(t, m, two), start(t, m, two)
		time.Sleep(10 * time.Second)
		left := a.number()
		a.crash(t.TempDir())
		m.Answer(left, workerid.Who{})
		c := start(t, m, two)
		if s := c.keeper.Status(); s.Held || !errors.Is(s.Trouble, workerid.ErrExhausted) {
			t.Errorf("a third of two workers: %+v, want ErrExhausted", s)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		time.Sleep(6 * time.Second)
		if c.number() == left {
			t.Error("the crashed worker's number was acquired within its window")
		}
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
}

// lostAck makes the next write land without an acknowledgement.
func lostAck(l *life) {
	var once sync.Once
	l.reg.OnCall(func(method string, call func() error) (err error) {
		err = call()
		if method == "Write" {
			once.Do(func() { err = workeridtest.ErrInjected })
		}
		return err
	})
}

func TestALostAckKeepsTheNumberAndGrowsTheWindowByTheNextWriteOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, new(workeridtest.Memory))
		w := l.number()
		lostAck(l)
		time.Sleep(3 * time.Minute)
		if l.number() != w || l.issue().Tick == 0 {
			t.Errorf("after a lost ack: %+v, want number %d still", l.keeper.Status(), w)
		}
		// Writes that land while every acknowledgement is lost must not grow it,
		// though the record that is read says otherwise.
		until := l.keeper.Status().Until
		l.reg.OnCall(func(method string, call func() error) error {
			err := call()
			if method == "Write" {
				err = workeridtest.ErrInjected
			}
			return err
		})
		time.Sleep(10 * time.Minute)
		if s := l.keeper.Status(); s.Held && s.Until != until || l.issue().Tick != 0 {
			t.Errorf("the window grew by %d ms without an acknowledgement", s.Until-until)
		}
		l.reg.OnCall(nil)
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestALostAckOfTheFirstWriteIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		l := start(t, m, func(c *workerid.Config) {
			f := c.Registry.(*workeridtest.Fake)
			lostAck(&life{reg: f})
		})
		records, err := l.reg.Records(t.Context())
		if err != nil || len(records) != 1 || l.number() < 0 {
			t.Errorf("records %v, %v, want the one number", records, err)
		}
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAForeignTokenClosesTheGeneratorAndAnotherNumberIsAcquired(t *testing.T) {
	for name, steal := range map[string]func(t *testing.T, m *workeridtest.Memory, w int){
		"taken by another": func(t *testing.T, m *workeridtest.Memory, w int) {
			f := &workeridtest.Fake{Memory: m}
			r, _ := f.Record(t.Context(), w)
			r.Token, r.Instance = "foreign", "thief"
			if _, err := f.Write(t.Context(), w, r); err != nil {
				t.Fatal(err)
			}
		},
		"registry wiped": func(_ *testing.T, m *workeridtest.Memory, _ int) { m.Wipe() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := new(workeridtest.Memory)
				l := start(t, m, in(t.TempDir()))
				w, g := l.number(), l.gen()
				time.Sleep(time.Minute)
				steal(t, m, w)
				time.Sleep(2 * time.Minute)
				if err := g.CheckAt(now()); !errors.Is(err, snowflake.ErrClosed) {
					t.Errorf("the old generator: %v, want it closed", err)
				}
				l.raised(workerid.NumberLost)
				if name == "taken by another" && l.number() == w {
					t.Error("the lost number is held again")
				}
				if l.issue().Tick == 0 {
					t.Error("no other number serves")
				}
				if err := l.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestANumberWithoutARecordIsUsedFromTheClockSkewOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := now()
		l := start(t, new(workeridtest.Memory))
		var p snowflake.Parts
		for ; p.Tick == 0; p = l.issue() {
			time.Sleep(time.Millisecond)
		}
		if first := layout.FirstMs(p.Tick) - begin; first < 1000 || first > 1010 {
			t.Errorf("the first tick begins %d ms after the start, want 1000", first)
		}
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestANumberThatAWorkerAnswersForIsNotAcquired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		for w := range 1024 {
			if w != 500 {
				m.Answer(w, workerid.Who{Instance: "old", Process: "old"})
			}
		}
		l := start(t, m)
		if w := l.number(); w != 500 {
			t.Errorf("number %d was acquired, though a worker answers for it", w)
		}
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestOneNameInTwoDirectoriesIsTwoNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		named := func(c *workerid.Config) { c.Instance = "twin"; c.StateDir = t.TempDir() }
		a, b := start(t, m, named), start(t, m, named)
		if a.number() == b.number() {
			t.Errorf("both have number %d", a.number())
		}
		if err := errors.Join(a.stop(), b.stop()); err != nil {
			t.Error(err)
		}
	})
}

func TestAnotherLayoutOrEpochIsRefusedAndBothAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(workeridtest.Memory)
		first := start(t, m)
		other := start(t, m, func(c *workerid.Config) { c.Layout.Epoch = 7 })
		err := <-other.err
		if !errors.Is(err, workerid.ErrDeployment) {
			t.Fatalf("error %v, want ErrDeployment", err)
		}
		for _, part := range []string{"41+10+12", "946598400000", "epoch 7"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not show %q", err, part)
			}
		}
		if err := first.stop(); err != nil {
			t.Error(err)
		}
	})
}
