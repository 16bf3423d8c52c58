//go:build unix

package tests

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/snowflake"
)

// A write hangs in the kernel, because the new state file is a pipe without a
// reader.
func TestADiskThatHangsCostsTheNumberAndNothingElse(t *testing.T) {
	t.Parallel()
	var dir string
	c := e2e.Start(t, configured(func(_ int, cfg *app.Config) { dir = cfg.Data }))
	raised := listen(t, c)
	l := startLoad(t, patience, c.Conn, 2, bothModes)
	pipe := filepath.Join(dir, "worker.json.new")
	if err := syscall.Mkfifo(pipe+".pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(pipe+".pipe", pipe); err != nil { // the next write of the state file hangs, or the one after
		t.Fatal(err)
	}
	waitFor(t, "another number serves", func() bool {
		id, err := c.Client.Snowflake().Next(t.Context())
		p, derr := snowflake.Leaf.Decode(int64(id))
		return err == nil && derr == nil && p.Worker != c.WorkerNumber(0)
	})
	waitFor(t, "an alarm", func() bool { return raised.have("state-file") })
	l.stop()
	l.check(t)
	asked := time.Now()
	c.StopWorker(0)
	if d := time.Since(asked); d > supervisorsWait {
		t.Errorf("the stop took %v", d)
	}
	if r, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil { // lets the writer go
		r.Close()
	}
}
