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

	"github.com/natsid/natsid/workerid"
	"github.com/natsid/natsid/workerid/workeridtest"
)

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
