package e2e

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"testing"
)

// A proxy stands between a worker and its nats-server. It can stall the
// connections of one name: they stay open, or are made, and nothing passes.
type proxy struct {
	listener net.Listener
	server   string // host:port

	mu      sync.Mutex
	cond    *sync.Cond
	stalled string
	closed  bool
	conns   []net.Conn
}

func startProxy(t *testing.T, url string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, server: strings.TrimPrefix(url, "nats://")}
	p.cond = sync.NewCond(&p.mu)
	t.Cleanup(p.close)
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

// stall stops what connections with this NATS client name send and receive.
func (p *proxy) stall(name string) { p.set(func() { p.stalled = name }) }

func (p *proxy) resume() { p.set(func() { p.stalled = "" }) }

func (p *proxy) close() {
	p.listener.Close()
	p.set(func() {
		p.closed = true
		for _, c := range p.conns {
			c.Close()
		}
	})
}

func (p *proxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.cond.Broadcast()
}

// gate waits while connections named name are stalled.
func (p *proxy) gate(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name != "" && p.stalled == name && !p.closed {
		p.cond.Wait()
	}
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		client.Close()
		return
	}
	p.set(func() { p.conns = append(p.conns, client, server) })
	var name nameOf
	go p.copy(client, server, &name)
	p.copy(server, client, &name)
}

func (p *proxy) copy(to, from net.Conn, name *nameOf) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.gate(name.get())
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		name.look(buf[:n])
		if err != nil {
			return
		}
	}
}

// nameOf is the name of a NATS connection, once it is made.
type nameOf struct {
	mu   sync.Mutex
	said string // in CONNECT
	name string // once the server has accepted it
}

func (n *nameOf) look(b []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, rest, ok := bytes.Cut(b, []byte(`"name":"`)); ok && bytes.HasPrefix(b, []byte("CONNECT ")) {
		name, _, _ := bytes.Cut(rest, []byte(`"`))
		n.said = string(name)
	}
	if bytes.HasPrefix(b, []byte("PONG")) {
		n.name = n.said
	}
}

func (n *nameOf) get() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.name
}
