package app_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/tcpproxy"
)

// Whoever publishes on such a connection waits, whatever its context says, and so do its pings: they do not show that
// the server hangs.
func TestAConnectionWhoseServerReadsNothingIsLeftWithinSeconds(t *testing.T) {
	for name, bytes := range map[string]int{"large messages": 1 << 19, "small messages": 1 << 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var hangs atomic.Bool
			target := strings.TrimPrefix(natstest.Start(t), "nats://")
			proxy, err := tcpproxy.Start(target, deafOnce(&hangs))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(proxy.Close)
			again := make(chan struct{})
			nc, err := app.Join(joined(t, "nats://"+proxy.Addr()), []nats.Option{
				nats.MaxReconnects(-1), nats.Timeout(time.Minute),
				nats.ReconnectHandler(func(*nats.Conn) { close(again) }),
			})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			t.Cleanup(func() { nc.Close(); <-ended })
			hangs.Store(true)
			go func() {
				defer close(ended)
				for body := make([]byte, bytes); !nc.IsClosed() && nc.Stats().Reconnects == 0; {
					_ = nc.Publish("any", body) // its error is of no use to the caller
				}
			}()
			select {
			case <-again:
			case <-time.After(40 * time.Second):
				t.Error("after 40 s it is not left")
			}
		})
	}
}

// nats.go drops data that it could not write, and keeps the connection: without a subscription, or an answer.
func TestAConnectionThatLostWhatWasToBeWrittenIsMadeAnew(t *testing.T) {
	cfg := joined(t, natstest.Start(t))
	var d flaky
	nc, err := app.Join(cfg, []nats.Option{nats.MaxReconnects(-1), nats.Timeout(time.Minute), nats.SetCustomDialer(&d)})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	d.fails.Store(true)
	sub, err := nc.SubscribeSync("any")
	if err != nil {
		t.Fatal(err)
	}
	publisher := natstest.Connect(t, cfg.NATS)
	for deadline := time.Now().Add(time.Minute); ; {
		if err := publisher.Publish("any", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := sub.NextMsg(50 * time.Millisecond); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("what was subscribed to does not come")
		}
	}
}

// nats-server refuses whoever is connecting while it reads its configuration again, though the user is right.
func TestAServerThatRefusesOnceIsJoined(t *testing.T) {
	target := strings.TrimPrefix(natstest.Start(t), "nats://")
	var refused atomic.Bool
	proxy, err := tcpproxy.Start(target, func(_ context.Context, client, server *net.TCPConn) {
		if refused.CompareAndSwap(false, true) {
			info, _ := bufio.NewReader(server).ReadString('\n')
			_, _ = io.WriteString(client, info)
			_, _ = bufio.NewReader(client).ReadString('\n')
			_, _ = io.WriteString(client, "-ERR 'Authorization Violation'\r\n")
			return
		}
		go func() { _, _ = io.Copy(client, server) }()
		_, _ = io.Copy(server, client)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	nc, err := app.Join(joined(t, "nats://"+proxy.Addr()), []nats.Option{nats.Timeout(time.Minute)})
	if err != nil || !refused.Load() {
		t.Fatal(err)
	}
	nc.Close()
}

// A flaky dialer makes connections; one write fails once that is wanted.
type flaky struct {
	fails atomic.Bool
}

func (f *flaky) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return flakyConn{conn, f}, err
}

type flakyConn struct {
	net.Conn
	*flaky
}

func (c flakyConn) Write(b []byte) (int, error) {
	if c.fails.CompareAndSwap(true, false) {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(b)
}

// deafOnce passes on everything, but reads nothing from the client of the first connection once it hangs.
func deafOnce(hangs *atomic.Bool) tcpproxy.Handler {
	var taken atomic.Bool
	return func(ctx context.Context, client, server *net.TCPConn) {
		first := taken.CompareAndSwap(false, true)
		go func() { _, _ = io.Copy(client, server) }()
		for buf := make([]byte, 1<<10); ; {
			if first && hangs.Load() {
				<-ctx.Done()
				return
			}
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}
