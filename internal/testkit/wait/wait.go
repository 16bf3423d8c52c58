// Package wait makes a test wait for a condition rather than for a time.
package wait

import (
	"errors"
	"testing"
	"time"
)

const (
	// patience is how long a condition may take on a machine that is busy with other work.
	patience = 2 * time.Minute
	// pause is the time between two looks at a condition.
	pause = 2 * time.Millisecond
)

// Until returns once cond returns true. If that takes longer than two minutes, it ends the test tb, and the message has
// the text what: the condition. It must be called by the goroutine of the test.
func Until(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	no := errors.New(what)
	For(tb, func() error {
		if cond() {
			return nil
		}
		return no
	})
}

// For returns once try returns nil. If that takes longer than two minutes, it ends the test tb with the last error of
// try. It must be called by the goroutine of the test.
func For(tb testing.TB, try func() error) {
	tb.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %v", patience, err)
		}
	}
}
