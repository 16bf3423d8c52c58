package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

// patient is a client whose calls wait longer than a busy machine takes.
func patient(nc *nats.Conn) *client.Client {
	return client.Must(client.New(nc, client.Config{Timeout: long}))
}

func TestACallThatGivesUpBeforeItsRequestIsSentLeavesNoHole(t *testing.T) {
	nc := connect(t)
	d, h := openDesk(t, nc), order(patient(nc), client.SegmentConfig{})
	first, gathered := gather(t.Context(), t, d, h, 5)
	ctx, cancel := context.WithCancel(t.Context())
	gone := start(ctx, h, 3)
	wait.Until(t, "all calls wait", func() bool { return h.Gathered() == 8 })
	cancel()
	for range 3 {
		if r := <-gone; !errors.Is(r.err, context.Canceled) {
			t.Errorf("%+v, want the end of its context", r)
		}
	}
	d.issueHeld()
	once(t, collect(t, first, 4), collect(t, gathered, 5))
	if got := h.Stats().IDs; got != 4+5 {
		t.Errorf("%d IDs were issued, want 5 of them for the calls that still waited", got)
	}
}

func TestAllCallsThatWaitWhileAServerStandsStillGetIDs(t *testing.T) {
	t.Parallel()
	const callers = 15_000
	nc := connect(t)
	d, h := openDesk(t, nc), order(patient(nc), client.SegmentConfig{})
	first, gathered := gather(t.Context(), t, d, h, callers-4)
	d.issueHeld()
	once(t, collect(t, first, 4), collect(t, gathered, callers-4))
	for _, n := range d.requests() {
		if n > client.DefaultMaxBatch {
			t.Errorf("a request for %d IDs", n)
		}
	}
	sent := h.Stats().Requests
	if _, err := h.NextN(t.Context(), callers); err != nil || h.Stats().Requests != sent+1 {
		t.Errorf("a call for many has several requests, as a large batch has: %v", err)
	}
}

func TestCallsThatGaveUpTakeNoPlace(t *testing.T) {
	nc := connect(t)
	const most = 2
	d, h := openDesk(t, nc), order(patient(nc), client.SegmentConfig{MaxBatch: most})
	first, gathered := gather(t.Context(), t, d, h, 1)
	for range 10 * 5 * most {
		ctx, cancel := context.WithCancel(t.Context())
		gone := start(ctx, h, 1)
		wait.Until(t, "the call waits", func() bool { return h.Gathered() == 2 })
		cancel()
		if r := <-gone; !errors.Is(r.err, context.Canceled) {
			t.Errorf("%+v, want the end of its context", r)
		}
	}
	late := start(t.Context(), h, 5*most-4-1)
	wait.Until(t, "the last calls wait", func() bool { return h.Gathered() == 5*most-4 })
	if _, err := h.Next(t.Context()); !errors.Is(err, client.ErrBusy) {
		t.Errorf("%v, want ErrBusy", err)
	}
	d.issueHeld()
	once(t, collect(t, first, 4), collect(t, gathered, 1), collect(t, late, 5*most-4-1))
	if got := h.Stats().IDs; got != 5*most {
		t.Errorf("%d IDs were issued, want %d", got, 5*most)
	}
}

// Calls join it before and after those that wait learn that the answer takes long.
func TestEachCallOfALargeBatchEndsWhenItTakesLong(t *testing.T) {
	nc := connect(t)
	d, h := openDesk(t, nc), order(patient(nc), client.SegmentConfig{})
	const half = 500
	ctx, cancel := context.WithCancel(t.Context())
	first, gathered := gather(t.Context(), t, d, h, half)
	lasting := start(context.Background(), h, half)
	wait.Until(t, "all calls wait", func() bool { return h.Gathered() == 2*half })
	time.Sleep(50 * time.Millisecond)
	gone := start(ctx, h, half)
	late := start(context.Background(), h, half)
	wait.Until(t, "later calls wait", func() bool { return h.Gathered() == 4*half })
	cancel()
	for range half {
		if r := <-gone; !errors.Is(r.err, context.Canceled) {
			t.Fatalf("%+v, want the end of its context", r)
		}
	}
	d.issueHeld()
	once(t, collect(t, first, 4), collect(t, gathered, half), collect(t, lasting, half), collect(t, late, half))
}

// limit refuses batches above a limit, as workers do.
func (d *desk) limit(most string, n int) func(int, int, *nats.Msg) bool {
	return func(_, asked int, m *nats.Msg) bool {
		if asked > n {
			refuseWith(d.t, m, subjects.BadRequest, subjects.HeaderMaxBatch, most)
		} else {
			d.issue(m)
		}
		return true
	}
}
