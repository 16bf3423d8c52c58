package natsproxy_test

import (
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

const (
	soon = 30 * time.Second       // within which what must come has come
	long = 150 * time.Millisecond // for which tests watch that something does not come
)

func start(t *testing.T, target string) *natsproxy.Proxy {
	t.Helper()
	p, err := natsproxy.Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func connect(t *testing.T, p *natsproxy.Proxy, name string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return natstest.Connect(t, p.URL(), append(opts, nats.Name(name), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))...)
}

func subscribe(t *testing.T, nc *nats.Conn, subject string) *nats.Subscription {
	t.Helper()
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	flush(t, nc)
	return sub
}

func bucket(t *testing.T, js jetstream.JetStream, name string) jetstream.KeyValue {
	t.Helper()
	kv, err := js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: name})
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// flush fails unless the server answers the connection, or the one that replaces
// it.
func flush(t *testing.T, nc *nats.Conn) {
	t.Helper()
	waitFor(t, "the server answers", func() bool { return nc.FlushTimeout(soon) == nil })
}

// silent fails if the server answers.
func silent(t *testing.T, nc *nats.Conn) {
	t.Helper()
	if err := nc.FlushTimeout(long); err == nil {
		t.Error("the server answers")
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
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

func dial(t *testing.T, p *natsproxy.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// read reads something within d.
func read(c net.Conn, d time.Duration) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(d))
	return c.Read(make([]byte, 1000))
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", soon, what)
		}
	}
}
