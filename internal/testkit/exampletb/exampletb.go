// Package exampletb lets runnable examples call functions that need a
// [testing.TB], which the testing package gives to tests only.
package exampletb

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
)

// A T stands in for the testing.TB of a test. It has the methods that the harness e2e calls; any other panics, as does
// a failure. Run is safe for sequential use only, the rest for concurrent use.
type T struct {
	testing.TB

	mu       sync.Mutex
	cleanups []func()
}

// Helper does nothing.
func (*T) Helper() {}

// Output returns standard error: examples compare standard output.
func (*T) Output() io.Writer { return os.Stderr }

// Context returns a context without end.
func (*T) Context() context.Context { return context.Background() }

// Errorf panics with the message.
func (*T) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Fatalf panics with the message.
func (*T) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Cleanup registers f to be called by End, last registered first.
func (t *T) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// TempDir returns a new directory that End removes.
func (t *T) TempDir() string {
	dir, err := os.MkdirTemp("", "natsid-example-")
	if err != nil {
		t.Fatalf("exampletb: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("exampletb: %v", err)
		}
	})
	return dir
}

// End calls what was registered with Cleanup.
func (t *T) End() {
	t.mu.Lock()
	cleanups := t.cleanups
	t.cleanups = nil
	t.mu.Unlock()
	for _, f := range slices.Backward(cleanups) {
		f()
	}
}

// Around returns m such that t ends after its tests, for a TestMain:
//
//	goleak.VerifyTestMain(t.Around(m))
func (t *T) Around(m *testing.M) Main { return Main{t, m} }

// A Main is the tests of a package and a T that ends after them.
type Main struct {
	t *T
	m *testing.M
}

// Run runs the tests, ends the T, and returns the exit code of the tests.
func (m Main) Run() int {
	code := m.m.Run()
	m.t.End()
	return code
}
