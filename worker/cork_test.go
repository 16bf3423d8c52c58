package worker

import (
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Its writer was told that what was held is written. If the server then gets half of it, or nothing, all that follows
// would be read as something else.
func TestAConnectionThatCannotWriteWhatItHeldBackIsClosed(t *testing.T) {
	mine, peer := net.Pipe()
	defer peer.Close()
	k := &corked{Conn: mine}
	k.hold(1)
	if n, err := k.Write([]byte("SUB a 1\r\n")); n != 9 || err != nil {
		t.Fatalf("what is held back counts as %d bytes written, %v", n, err)
	}
	k.hold(-1)
	if err := k.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := k.Write([]byte("SUB b 2\r\n")); n != 0 || err == nil {
		t.Errorf("%d bytes count as written, %v", n, err)
	}
	_ = peer.SetReadDeadline(time.Now().Add(time.Minute)) // it fails where the other end is closed
	if n, err := peer.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the peer reads %d bytes, %v: want the end", n, err)
	}
}

// leaveSlowly leaves a queue group and a subscription in none, whose handlers end when free is called.
func leaveSlowly(t *testing.T, conn *nats.Conn) (left *nats.Subscription, free func()) {
	t.Helper()
	handles, handle := make(chan struct{}, 2), make(chan struct{})
	free = sync.OnceFunc(func() { close(handle) })
	t.Cleanup(free)
	var subs []*nats.Subscription
	for _, queue := range []string{"natsid", ""} {
		sub, err := conn.QueueSubscribe("slow", queue, func(*nats.Msg) { handles <- struct{}{}; <-handle })
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	if err := conn.Publish("slow", nil); err != nil {
		t.Fatal(err)
	}
	<-handles
	<-handles
	drain(&Config{Conn: conn}, subs)
	return subs[0], free
}

// await waits until the client does something.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the client does not: " + what)
		}
	}
}

// reconnect ends the connection, and returns how long it takes until there is another.
func reconnect(t *testing.T, conn *nats.Conn) time.Duration {
	t.Helper()
	began, before := time.Now(), conn.Stats().Reconnects
	if err := conn.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	await(t, "connect again", func() bool { return conn.Stats().Reconnects > before })
	return time.Since(began)
}

// The client subscribes to it again, and forgets it once it is handled: the worker must know.
func TestAConnectionDragsTheQueueGroupsThatAreLeftWhenItIsDialed(t *testing.T) {
	t.Parallel()
	conn := corkedConn(t)
	left, free := leaveSlowly(t, conn)
	for range 2 { // each dial is put off
		if took := reconnect(t, conn); took < leavingTimeout {
			t.Errorf("connected again after %v, with what is left", took)
		}
		if got := corkOf(conn).drags(); !slices.Equal(got, []*nats.Subscription{left}) {
			t.Errorf("it drags %v, want the queue subscription alone", got)
		}
	}
	free()
	await(t, "forget what is left", func() bool { return !left.IsValid() })
	reconnect(t, conn)
	if got := corkOf(conn).drags(); len(got) > 0 {
		t.Errorf("it drags %v, though nothing is left", got)
	}
}
