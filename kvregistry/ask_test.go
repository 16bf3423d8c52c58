package kvregistry_test

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/workerid"
)

// A tap is a connection that records the messages sent.
type tap struct {
	net.Conn
	mu   sync.Mutex
	sent bytes.Buffer
}

func (p *tap) Dial(network, address string) (_ net.Conn, err error) {
	p.Conn, err = net.Dial(network, address)
	return p, err
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent.Write(b)
	return p.Conn.Write(b)
}

// A thousand workers that start at once ask thousands of times: a subscription to a wildcard costs a server a look at
// each subject in use, so a question makes none.
func TestAQuestionSubscribesToNoWildcard(t *testing.T) {
	p := new(tap)
	nc, err := nats.Connect(srv.ClientURL(), append(kvregistry.Options(), nats.SetCustomDialer(p))...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kvregistry.New(js, place()).Ask(t.Context(), 1); !errors.Is(err, workerid.ErrNoWorker) {
		t.Errorf("%v, want %v", err, workerid.ErrNoWorker)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	subscribed := 0
	for line := range bytes.Lines(p.sent.Bytes()) {
		if bytes.HasPrefix(line, []byte("SUB ")) {
			subscribed++
			if bytes.ContainsAny(line, "*>") {
				t.Errorf("%s", line)
			}
		}
	}
	if subscribed == 0 {
		t.Error("nothing was subscribed to")
	}
}
