package client

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

// A call may look for the group that gathers, and join it only later.
func TestNoCallJoinsABatchThatHasLeft(t *testing.T) {
	nc := natstest.Connect(t, natstest.Start(t))
	issue := func(m *nats.Msg) { _ = m.Respond([]byte("1")) }
	if _, err := nc.QueueSubscribe("id.segment.order", subjects.QueueGroup, issue); err != nil {
		t.Fatal(err)
	}
	c := New(nc)
	t.Cleanup(c.Close)
	h := c.Segment("order")
	seen := h.merger.gathering.Load()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := h.Next(ctx); err != nil {
		t.Fatal(err)
	}
	if i := seen.joined.Add(1) - 1; i < sealed {
		t.Errorf("a call joins it as number %d", i)
	}
}
