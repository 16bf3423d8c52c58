package buckets_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

// A network is one whose last connection can be cut.
type network struct{ last atomic.Pointer[net.Conn] }

func (n *network) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	if err == nil {
		n.last.Store(&c)
	}
	return c, err
}

func (n *network) cut() { _ = (*n.last.Load()).Close() }

// Whoever waited on, for an answer that was sent to the connection of before, would keep others waiting.
func TestARequestEndsWithItsConnectionAndLaterOnesDoNot(t *testing.T) {
	url, between := natstest.Start(t), new(network)
	nc := natstest.Connect(t, url, nats.SetCustomDialer(between), nats.ReconnectWait(time.Millisecond))
	const nobody = "nobody" // serves this prefix of JetStream's interface, but for this test
	js, err := jetstream.NewWithAPIPrefix(nc, nobody)
	if err != nil {
		t.Fatal(err)
	}
	streams, api := buckets.OnJetStream(js), buckets.APIOf("", nobody)
	server, asked := natstest.Connect(t, url), make(chan *nats.Msg, 10)
	for _, subject := range []string{api.Get("b"), api.Write("b", "key")} {
		if _, err := server.ChanSubscribe(subject, asked); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for what, request := range map[string]func() error{
		"a read":  func() error { _, err := streams.Last(ctx, "b", "key"); return err },
		"a write": func() error { _, err := streams.Publish(ctx, "b", "key", buckets.Write{}); return err },
	} {
		outcome, before := make(chan error, 1), nc.Stats().Reconnects
		go func() { outcome <- request() }()
		<-asked
		between.cut()
		if err := <-outcome; err == nil || !strings.Contains(err.Error(), "the connection to NATS was lost") {
			t.Errorf("%s: %v, want that the connection was lost", what, err)
		}
		wait.Until(t, "it reconnects", func() bool { return nc.Stats().Reconnects > before })
		go func() { outcome <- request() }()
		select {
		case m := <-asked:
			if err := m.Respond([]byte(`{"stream":"KV_b","seq":7,"message":{"seq":7}}`)); err != nil {
				t.Fatal(err)
			}
		case <-ctx.Done():
			t.Fatalf("%s: nothing was sent on the next connection", what)
		}
		if err := <-outcome; err != nil {
			t.Errorf("%s on the next connection: %v", what, err)
		}
	}
}
