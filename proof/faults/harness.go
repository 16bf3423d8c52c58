//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A harness is the environment of a trial: its directory, its log of events, its violations so far, and its cleanups.
//
// It is a [testing.TB] as far as internal/testkit/mysqltest needs one. A method
// that fails it ends the trial, and must be called on the trial's goroutine.
type harness struct {
	testing.TB // nil: only the methods below exist

	name string
	dir  string // all files of the trial, and its logs
	ctx  context.Context

	mu         sync.Mutex
	zero       time.Time // origin of the times of events
	events     []string
	violations []string // broken promises
	broken     bool     // one of them is no matter of time
	skipped    string   // why the trial cannot run here
	cleanups   []func()
}

func newHarness(ctx context.Context, name, dir string) *harness {
	return &harness{name: name, dir: dir, ctx: ctx, zero: time.Now()}
}

// countFrom makes the times of later events count from t.
func (h *harness) countFrom(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.zero = t
}

// logf adds an event.
func (h *harness) logf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := time.Since(h.zero).Seconds()
	h.events = append(h.events, fmt.Sprintf("%8.3f  %s", at, fmt.Sprintf(format, args...)))
}

// violation records a broken promise; the trial continues.
func (h *harness) violation(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	h.logf("VIOLATION: %s", text)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violations = append(h.violations, text)
}

// wrong records a violation that no stall of the machine explains, as a repeated ID; the trial continues.
func (h *harness) wrong(format string, args ...any) {
	h.violation(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = true
}

// must ends the trial if there is an error.
func (h *harness) must(err error) {
	if err != nil {
		h.Fatal(err)
	}
}

// Methods that internal/testkit/mysqltest calls.

func (h *harness) Helper()                  {}
func (h *harness) Name() string             { return h.name }
func (h *harness) Context() context.Context { return h.ctx }
func (h *harness) Cleanup(f func())         { h.cleanups = append(h.cleanups, f) }
func (h *harness) Fatal(args ...any)        { h.Fatalf("%s", fmt.Sprint(args...)) }

func (h *harness) Errorf(format string, args ...any) { h.violation(format, args...) }

func (h *harness) Fatalf(format string, args ...any) {
	h.violation(format, args...)
	runtime.Goexit()
}

func (h *harness) Skipf(format string, args ...any) {
	h.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (h *harness) TempDir() string {
	dir, err := os.MkdirTemp(h.dir, "tmp")
	h.must(err)
	return dir
}

// run runs f to its end, or to the first failure, and then the functions given to Cleanup.
func (h *harness) run(f func()) {
	for _, part := range []func(){f, h.clean} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			part()
		}()
		<-done
	}
}

func (h *harness) clean() {
	for _, f := range slices.Backward(h.cleanups) {
		f()
	}
}

// waitFor waits for a condition, and ends the trial if the condition does not come true.
func (h *harness) waitFor(within time.Duration, what string, ok func() bool) {
	h.must(h.wait(within, what, ok))
}

func (h *harness) wait(within time.Duration, what string, ok func() bool) error {
	for late := time.After(within); !ok(); {
		select {
		case <-h.ctx.Done():
			return h.ctx.Err()
		case <-late:
			return fmt.Errorf("after %v still waiting: %s", within, what)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// sleep waits while callers continue.
func (h *harness) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.ctx.Done():
		h.Fatal("stopped")
	}
}

// path returns the path of a file of this trial.
func (h *harness) path(name string) string { return filepath.Join(h.dir, name) }

// logs returns the last warnings and errors of each worker and stage, which may show the reason of a violation.
func (h *harness) logs() string {
	names, _ := filepath.Glob(h.path("[ws]*.log"))
	var b strings.Builder
	for _, name := range names {
		text, _ := os.ReadFile(name)
		lines := slices.DeleteFunc(strings.Split(string(text), "\n"), unimportant)
		const most = 15
		if len(lines) > 0 {
			last := strings.Join(lines[max(0, len(lines)-most):], "\n")
			fmt.Fprintf(&b, "-- %s\n%s\n", filepath.Base(name), last)
		}
	}
	return b.String()
}

func unimportant(line string) bool {
	return !slices.ContainsFunc([]string{"level=WARN", "level=ERROR", "panic"}, func(mark string) bool {
		return strings.Contains(line, mark)
	})
}
