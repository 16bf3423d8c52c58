//go:build unix

package segment_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

const (
	// standsEnv makes this test binary the process that stands still.
	standsEnv     = "NATSID_SEGMENT_STANDS_STILL"
	standDeadline = 6 * time.Second
	// standsFor is longer than a load may take, and than a request waits while loads fail.
	standsFor = standDeadline * 13 / 20
)

// A load may take two thirds of the deadline. Where a process stood still for so long, its load has failed as soon as
// it runs again, and there is time for another one.
func TestARequestThatAStandstillLeavesTimeForIsServed(t *testing.T) {
	if os.Getenv(standsEnv) != "" {
		standStill(t)
		return
	}
	t.Parallel()
	stands := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	stands.Env, stands.Stderr = append(os.Environ(), standsEnv+"=1"), os.Stderr
	out, err := stands.StdoutPipe()
	if err == nil {
		err = stands.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan() // it waits for its load
	for _, s := range []os.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := stands.Process.Signal(s); err != nil {
			t.Error(err)
		}
		if s == syscall.SIGSTOP {
			time.Sleep(standsFor)
		}
	}
	for lines.Scan() {
		t.Log(lines.Text())
	}
	if err := stands.Wait(); err != nil {
		t.Error("the request was refused:", err)
	}
}

// standStill waits for a load whose answer never comes, reports that, and is stopped in that time.
func standStill(t *testing.T) {
	store := &segmenttest.Faulty{Store: new(segmenttest.Memory)}
	create(t, store, segment.Tag{Name: "a", Step: 100, MaxID: 1, Rules: segment.Rules{Strict: true}})
	var loads atomic.Int32
	waits := make(chan struct{})
	store.OnLoad(func(ctx context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
		if loads.Add(1) == 1 {
			close(waits)
			<-ctx.Done()
			return segment.Range{}, ctx.Err()
		}
		return load()
	})
	a := segment.New(segment.Config{Store: store, Deadline: standDeadline, LoadTimeout: standDeadline * 5 / 8})
	defer a.Close()
	answer := asked(t, a, 1)
	<-waits
	fmt.Println("a load is under way")
	if got := <-answer; got.Start != 1 {
		t.Errorf("%v, want the ID 1", got)
	}
}
