package workerid_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

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
