package tcpproxy_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/testkit/tcpproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// copyBoth is a handler that changes nothing.
func copyBoth(_ context.Context, client, server *net.TCPConn) {
	var wg sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{client, server}, {server, client}} {
		wg.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			_ = way[1].CloseWrite()
		})
	}
	wg.Wait()
}

// untilCut is a handler that passes nothing.
func untilCut(ctx context.Context, _, _ *net.TCPConn) { <-ctx.Done() }

func start(t *testing.T, handle tcpproxy.Handler) (*tcpproxy.Proxy, net.Listener) {
	t.Helper()
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.Close() })
	p, err := tcpproxy.Start(target.Addr().String(), handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, target
}

func dial(t *testing.T, p *tcpproxy.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return c
}

func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// wantEnd checks that the other side has hung up, in whatever way.
func wantEnd(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("read %d bytes, want the end", n)
	} else if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		t.Errorf("the connection stays open: %v", err)
	}
}

func TestTheHandlerPassesBytesOn(t *testing.T) {
	t.Parallel()
	p, target := start(t, copyBoth)
	client, server := dial(t, p), accept(t, target)
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		if _, err := io.WriteString(way[0], "hello"); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(way[1], got); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

func TestRefusedAreNewConnectionsOnly(t *testing.T) {
	t.Parallel()
	p, target := start(t, copyBoth)
	client, server := dial(t, p), accept(t, target)
	pass := func() {
		t.Helper()
		if _, err := io.WriteString(client, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(server, make([]byte, 1)); err != nil {
			t.Errorf("the open connection: %v", err)
		}
	}
	pass() // it is made once bytes pass, a moment after the target has accepted it
	p.Refuse(true)
	wantEnd(t, dial(t, p))
	pass()
	p.Refuse(false)
	dial(t, p)
	accept(t, target)
}

func TestACutEndsTheHandlerAndBothEnds(t *testing.T) {
	t.Parallel()
	p, target := start(t, untilCut)
	client, server := dial(t, p), accept(t, target)
	p.Cut()
	wantEnd(t, client)
	wantEnd(t, server)
	dial(t, p)
	accept(t, target) // later ones are served
}

func TestATargetThatIsDownIsAClosedConnection(t *testing.T) {
	t.Parallel()
	p, target := start(t, copyBoth)
	target.Close()
	wantEnd(t, dial(t, p))
}

func TestCloseWaitsForHandlersAndMayComeTwice(t *testing.T) {
	t.Parallel()
	entered, ended := make(chan bool), false
	p, _ := start(t, func(ctx context.Context, _, _ *net.TCPConn) {
		close(entered)
		<-ctx.Done()
		ended = true
	})
	dial(t, p)
	<-entered
	if p.Close(); !ended {
		t.Error("a handler still runs")
	}
	p.Close()
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		c.Close()
		t.Error("it still listens")
	}
}
