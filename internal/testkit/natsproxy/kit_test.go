package natsproxy_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

const (
	soon = 30 * time.Second // within which what must come has come
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

func connect(t *testing.T, p *natsproxy.Proxy, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return natstest.Connect(t, p.URL(), append(opts, nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))...)
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", soon, what)
		}
	}
}
