//go:build unix

package app_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

// The journal hangs in the kernel, because the new file is a pipe without a reader, while the worker writes its own key
// on. The next life must recognize that key, and must not begin while the write may still land.
func TestTheNextLifeAfterAJournalThatHungWaitsForItAndServes(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for three checks: not with -short")
	}
	t.Parallel()
	cfg := joined(t, natstest.Start(t))
	first := launch(t, cfg)
	c := patient(natstest.Connect(t, first.where().URL), "")
	if _, err := c.CreateTag(t.Context(), subjects.TagCreate{Tag: "strict", Strict: true}); err != nil {
		t.Fatal(err)
	}
	next := func() subjects.ID { // a load of its own
		t.Helper()
		id, err := client.Must(c.Segment("strict", client.SegmentConfig{})).Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	before := next()
	pipe := filepath.Join(cfg.Data, "lineage.json.new")
	wait.For(t, func() error { return syscall.Mkfifo(pipe, 0o600) }) // a write may be under way
	for range 3 {
		time.Sleep(3100 * time.Millisecond) // then a load begins with a check, which writes the own key
		before = next()
	}
	first.logs("state-file", "lineage.json cannot be written")
	first.stop()
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	if err := launch(t, cfg).end(); !errors.Is(err, app.ErrDataInUse) {
		t.Errorf("%v, want ErrDataInUse while the write is under way", err)
	}
	r, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0) // lets the writer go
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	var second *instance
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		second = launch(t, cfg)
		select {
		case <-second.ready:
		case <-second.done:
			if errors.Is(second.err, app.ErrDataInUse) && time.Now().Before(until) {
				continue
			}
			t.Fatal(second.err)
		case <-time.After(time.Minute):
			t.Fatal("the next life does not serve")
		}
		break
	}
	if after := next(); after <= before {
		t.Errorf("%d after %d", after, before)
	}
}
