package tests

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/wait"
)

// Tests must pass on a machine that is busy with other work, where anything may
// take seconds: they wait for conditions, each for up to twice patience, and a bound on
// a duration leaves room for such a machine.
const (
	patience = time.Minute
	// slack is what a busy machine may add to a deadline that workers keep.
	slack = 15 * time.Second
)

// patient returns a context whose deadline is far away. Without a deadline a
// client gives up after [client.DefaultTimeout], which a busy machine may need
// for an answer.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

// inNoHurry configures workers that must not refuse any request in a test: on a
// busy machine a load can outlast the default deadline.
func inNoHurry(_ int, cfg *app.Config) { cfg.Deadline = 15 * time.Second }

// waitServed waits until a caller's server knows of workers in both modes: it
// learns of those on other servers a moment after they are ready.
func waitServed(t *testing.T, nc *nats.Conn) {
	t.Helper()
	for _, subject := range bothModes {
		wait.Until(t, "an answer on "+subject, func() bool {
			_, err := nc.Request(subject, nil, patience)
			return err == nil
		})
	}
}
