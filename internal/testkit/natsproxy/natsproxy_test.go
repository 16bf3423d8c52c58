package natsproxy_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natstest.Left()...) }

func TestAStalledClientStandsStillAndLosesNothing(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	p := start(t, url)
	sub := subscribe(t, natstest.Connect(t, url), "x")
	a, b := connect(t, p, "a"), connect(t, p, "b")

	p.Stall(true, "a")
	if err := a.Publish("x", []byte("late")); err != nil {
		t.Fatal(err)
	}
	silent(t, a)
	flush(t, b)
	again := connect(t, p, "a") // still accepted, by the server too
	silent(t, again)
	if msg, err := sub.NextMsg(long); err == nil {
		t.Errorf("%q came through", msg.Data)
	}

	p.Stall(false, "a")
	flush(t, a)
	flush(t, again)
	if msg, err := sub.NextMsg(soon); err != nil || string(msg.Data) != "late" {
		t.Errorf("what was said meanwhile: %v, %v", msg, err)
	}
	if n := a.Stats().Reconnects; n != 0 {
		t.Errorf("it reconnected %d times", n)
	}
}

func TestADelayDelaysEachByteAndNotTheOnesBehindIt(t *testing.T) {
	t.Parallel()
	p := start(t, natstest.Start(t))
	nc := connect(t, p, "a")
	sub := subscribe(t, nc, "x")
	const delay = 100 * time.Millisecond
	p.Delay(delay)
	if rtt, err := nc.RTT(); err != nil || rtt < 2*delay {
		t.Errorf("round trip %v, %v, want %v", rtt, err, 2*delay)
	}
	asked := time.Now()
	for i := range 1000 {
		if err := nc.Publish("x", strconv.AppendInt(nil, int64(i), 10)); err != nil {
			t.Fatal(err)
		}
		if i%5 == 0 { // many small writes
			_ = nc.FlushTimeout(time.Nanosecond)
		}
	}
	for i := range 1000 {
		msg, err := sub.NextMsg(soon)
		if err != nil || string(msg.Data) != strconv.Itoa(i) {
			t.Fatalf("message %d: %v, %v", i, msg, err)
		}
	}
	// One after the other they would take 100 s.
	if d := time.Since(asked); d < 2*delay || d > soon {
		t.Errorf("1000 messages took %v, want little more than %v", d, 2*delay)
	}
	p.Delay(0)
	waitFor(t, "a round trip without delay", func() bool { rtt, err := nc.RTT(); return err == nil && rtt < 2*delay })
}

func TestACutLosesWhatIsHeldBack(t *testing.T) {
	t.Parallel()
	target := listen(t)
	p := start(t, target.Addr().String())
	p.Stall(true, "")
	for range 20 {
		c := dial(t, p)
		s := accept(t, target)
		if _, err := c.Write([]byte("PUB x 1\r\n1\r\n")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // it may have arrived at the proxy or not: either way it must not pass
		p.Cut()
		if n, err := read(s, soon); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the server read %d bytes, %v, want the end", n, err)
		}
	}
}

func TestADroppedAcknowledgementIsOfAWriteThatLanded(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	p := start(t, url)
	kv := bucket(t, natstest.JetStream(t, url), "b")
	js, err := jetstream.New(connect(t, p, "a"))
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
