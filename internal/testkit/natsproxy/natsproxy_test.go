package natsproxy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natstest.Left()...) }

func TestADelayDelaysBothWays(t *testing.T) {
	t.Parallel()
	p := start(t, natstest.Start(t))
	nc := connect(t, p)
	const delay = 100 * time.Millisecond
	p.Delay(delay)
	if rtt, err := nc.RTT(); err != nil || rtt < 2*delay {
		t.Errorf("round trip %v, %v, want %v", rtt, err, 2*delay)
	}
	p.Delay(0)
	waitFor(t, "a round trip without delay", func() bool { rtt, err := nc.RTT(); return err == nil && rtt < 2*delay })
}

func TestADroppedAcknowledgementIsOfAWriteThatLanded(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	p := start(t, url)
	kv := bucket(t, natstest.JetStream(t, url), "b")
	js, err := jetstream.New(connect(t, p))
	if err != nil {
		t.Fatal(err)
	}
	far, other := bucket(t, js, "b"), bucket(t, js, "other")

	p.DropAcks(natsproxy.All)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if rev, err := far.Put(ctx, "k", []byte("landed")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write with its acknowledgement dropped: %d, %v", rev, err)
	}
	waitFor(t, "the acknowledgement is dropped", func() bool { return p.Dropped() == 1 })
	e, err := kv.Get(t.Context(), "k")
	if err != nil || string(e.Value()) != "landed" {
		t.Fatalf("it did not land: %v, %v, %d dropped", e, err, p.Dropped())
	}
	if seen, err := far.Get(t.Context(), "k"); err != nil || seen.Revision() != e.Revision() {
		t.Errorf("a read through the proxy: %v, %v", seen, err)
	}
	if _, err := far.Create(t.Context(), "k", nil); !errors.Is(err, jetstream.ErrKeyExists) {
		t.Errorf("a refusal does not pass: %v", err)
	}

	p.DropAcks(func(stream string, _ uint64) bool { return stream == "KV_b" })
	if _, err := other.Put(t.Context(), "k", nil); err != nil {
		t.Errorf("an acknowledgement of another stream: %v", err)
	}
	p.DropAcks(nil)
	if _, err := far.Update(t.Context(), "k", nil, e.Revision()); err != nil || p.Dropped() != 1 {
		t.Errorf("afterwards: %v, %d dropped", err, p.Dropped())
	}
}
