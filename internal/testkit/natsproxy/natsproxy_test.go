package natsproxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
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

func TestEachStallIsASwitchOfItsOwn(t *testing.T) {
	t.Parallel()
	p := start(t, natstest.Start(t))
	a, b, c := connect(t, p, "a"), connect(t, p, "b"), connect(t, p, "")
	p.Stall(true, "")
	silent(t, a)
	p.Stall(true, "a")
	p.Stall(true, "b")
	silent(t, c)
	p.Stall(false, "")
	flush(t, c)
	silent(t, a)
	p.Stall(false, "a")
	flush(t, a)
	silent(t, b)
	p.Pass()
	flush(t, b)
}

func TestWithAllStalledNothingPassesFromTheFirstByte(t *testing.T) {
	t.Parallel()
	p := start(t, natstest.Start(t))
	p.Stall(true, "")
	c := dial(t, p)
	if n, err := read(c, long); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v, want an open connection and silence", n, err)
	}
	p.Stall(false, "")
	if n, err := read(c, soon); n == 0 {
		t.Errorf("INFO does not come: %v", err)
	}
}

func TestAHangUpIsStalledAndDelayedToo(t *testing.T) {
	t.Parallel()
	target := listen(t)
	p := start(t, target.Addr().String())
	p.Stall(true, "")
	c := dial(t, p)
	s := accept(t, target)
	s.Close()
	if _, err := read(c, long); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want silence", err)
	}
	p.Stall(false, "")
	if _, err := read(c, soon); err != io.EOF {
		t.Errorf("%v, want the end", err)
	}

	p.Delay(long)
	c, s = dial(t, p), accept(t, target)
	asked := time.Now()
	s.Close()
	if _, err := read(c, soon); err != io.EOF || time.Since(asked) < long {
		t.Errorf("%v after %v, want the end after %v", err, time.Since(asked), long)
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

func TestCutClosesWhatIsOpenAndNothingElse(t *testing.T) {
	t.Parallel()
	p := start(t, natstest.Start(t))
	lost := make(chan error, 10)
	nc := connect(t, p, "a", nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { lost <- err }))
	p.Cut()
	select {
	case <-lost:
	case <-time.After(soon):
		t.Fatal("the client does not notice")
	}
	flush(t, nc) // connected again
	if n := nc.Stats().Reconnects; n != 1 {
		t.Errorf("it reconnected %d times, want once", n)
	}
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

func TestRefusedAreNewConnectionsOnly(t *testing.T) {
	t.Parallel()
	p := start(t, natstest.Start(t))
	nc := connect(t, p, "a")
	p.Refuse(true)
	flush(t, nc)
	if n, err := read(dial(t, p), soon); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v, want the end", n, err)
	}
	p.Cut() // a dead network
	waitFor(t, "it is seen", func() bool { return nc.Status() == nats.RECONNECTING })
	silent(t, nc)
	p.Refuse(false)
	flush(t, nc)
}

func TestAServerThatIsDownIsAClosedConnection(t *testing.T) {
	t.Parallel()
	target := listen(t)
	p := start(t, "nats://"+target.Addr().String())
	target.Close()
	if n, err := read(dial(t, p), soon); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v, want the end", n, err)
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

func TestLargeMessagesPassTheParserUnharmed(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	p := start(t, url)
	p.DropAcks(natsproxy.All)
	sub := subscribe(t, connect(t, p, "a"), "x")
	from := natstest.Connect(t, url)
	ack := []byte(`{"stream":"KV_id","seq":7}`)
	var want []*nats.Msg
	for i := range 20 {
		msg := nats.NewMsg("x")
		msg.Data = bytes.Repeat([]byte(fmt.Sprintf("MSG x 1 26\r\n%s\r\n%d", ack, i)), 4000)
		if i%2 == 0 {
			msg.Header.Set("K", string(bytes.Repeat([]byte("v"), i*1000)))
		}
		want = append(want, msg)
		for _, m := range []*nats.Msg{msg, {Subject: "x", Data: ack}} {
			if err := from.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, w := range want {
		got, err := sub.NextMsg(soon)
		if err != nil || !bytes.Equal(got.Data, w.Data) || got.Header.Get("K") != w.Header.Get("K") {
			t.Fatalf("message %d is harmed: %v", i, err)
		}
	}
	waitFor(t, "all is dropped that looks like an acknowledgement", func() bool { return p.Dropped() == 20 })
}

func TestBothDirectionsEndByThemselves(t *testing.T) {
	t.Parallel()
	target := listen(t)
	p := start(t, target.Addr().String())
	c := dial(t, p)
	s := accept(t, target)
	if _, err := c.Write([]byte("over")); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(s)
	if err != nil || string(said) != "over" {
		t.Errorf("%q, %v", said, err)
	}
	answer := bytes.Repeat([]byte("0123456\n"), 1<<17)
	go func() {
		_, _ = s.Write(answer)
		s.Close()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, answer) {
		t.Errorf("%d bytes of %d, %v", len(got), len(answer), err)
	}
}

func TestHalfALineBeforeTheEndPasses(t *testing.T) {
	t.Parallel()
	target := listen(t)
	p := start(t, target.Addr().String())
	c := dial(t, p)
	s := accept(t, target)
	if _, err := s.Write([]byte("PING\r\n-ERR 'no")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != "PING\r\n-ERR 'no" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestCloseWaitsForWhatRuns(t *testing.T) {
	t.Parallel()
	target := listen(t)
	p := start(t, target.Addr().String())
	entered, over := make(chan bool), false
	p.DropAcks(func(string, uint64) bool {
		close(entered)
		time.Sleep(long)
		over = true
		return true
	})
	dial(t, p)
	if _, err := accept(t, target).Write([]byte("MSG a 1 22\r\n{\"stream\":\"s\",\"seq\":1}\r\n")); err != nil {
		t.Fatal(err)
	}
	<-entered
	if p.Close(); !over {
		t.Error("it is still being asked what to drop")
	}
}

func TestAQueueIsBounded(t *testing.T) {
	t.Parallel()
	target := listen(t)
	p := start(t, target.Addr().String())
	p.Stall(true, "")
	dial(t, p)
	s := accept(t, target)
	line := bytes.Repeat([]byte("+OK   \r\n"), 1<<13)
	for sent := 0; ; {
		_ = s.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := s.Write(line)
		if sent += n; errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil || sent > 64<<20 { // 16 MB and what the system holds
			t.Fatalf("%d bytes are gone, %v", sent, err)
		}
	}
}

func TestCloseEndsWhatWaitsAndMayComeTwice(t *testing.T) {
	t.Parallel()
	target := listen(t)
	p := start(t, target.Addr().String())
	stalled := dial(t, p)
	s := accept(t, target)
	p.Stall(true, "")
	if _, err := stalled.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	p.Delay(time.Hour)
	dial(t, p)
	if _, err := accept(t, target).Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	p.Close() // the leak check of TestMain sees whether all has ended
	p.Close()
	for _, c := range []net.Conn{stalled, s} {
		if n, err := read(c, soon); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes, %v, want the end", n, err)
		}
	}
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		c.Close()
		t.Error("it still listens")
	}
}

func TestSwitchesMayBeSetByMany(t *testing.T) {
	t.Parallel()
	p := start(t, natstest.Start(t))
	nc := connect(t, p, "a")
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			p.Stall(i%2 == 0, "a")
			p.Delay(time.Duration(i%3) * time.Millisecond)
			p.DropAcks(natsproxy.All)
			p.Refuse(i%2 == 0)
			_ = nc.Publish("x", nil)
			_ = nc.FlushTimeout(time.Millisecond)
			p.Cut()
		})
	}
	wg.Wait()
	p.Pass()
	flush(t, nc)
}
