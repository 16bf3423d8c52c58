package workerid_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

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
