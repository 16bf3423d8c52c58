package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/subjects"
)

// Tests must pass on a machine that is busy with other work, where anything may
// take seconds: they wait for conditions, each for up to twice patience, and a bound on
// a duration leaves room for such a machine.
const (
	patience = time.Minute
	// slack is what a busy machine may add to a deadline that workers keep.
	slack = 15 * time.Second
	// supervisorsWait is stop_grace_period in docker-compose.yml.
	supervisorsWait = 20 * time.Second
	// noAnswer is the exit code of a command that got no answer in its time.
	noAnswer = 3
)

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * patience); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", 2*patience, what)
		}
	}
}

// patient returns a context whose deadline is far away. Without a deadline a
// client gives up after [client.DefaultTimeout], which a busy machine may need
// for an answer.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

// diskStood reports whether the log of a worker says that the disk did not answer, for which it gives up its number.
func diskStood(log fmt.Stringer) bool {
	return strings.Contains(log.String(), "the disk has not answered")
}

// stands watches a machine whose workers may have no window left, since a write to the disk takes longer than the
// second for which one is written ahead. Such workers refuse snowflakes, or leave, as they should.
func stands(t *testing.T) (excuses func(error) bool) {
	f, err := os.Create(filepath.Join(t.TempDir(), "synced"))
	if err != nil {
		t.Fatal(err)
	}
	var stood atomic.Bool
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		defer f.Close()
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
			_, err := f.WriteAt([]byte("x"), 0)
			if err = errors.Join(err, f.Sync()); err != nil || time.Since(last) > time.Second {
				stood.Store(true)
			}
		}
	})
	t.Cleanup(func() { close(done); watching.Wait() })
	return func(err error) bool {
		e, refused := errors.AsType[*subjects.Error](err)
		return stood.Load() && (refused && e.Code == subjects.Unavailable || errors.Is(err, nats.ErrNoResponders))
	}
}

// inNoHurry configures workers that must not refuse any request in a test: on a
// busy machine a load can outlast the default deadline.
func inNoHurry(_ int, cfg *app.Config) { cfg.Deadline = 15 * time.Second }
