// Package tcpproxy is the core of the test kits' proxies: it accepts connections
// on loopback, dials the target for each, refuses and cuts them, and ends them
// all. What passes between the two ends of a connection is up to its handler.
package tcpproxy

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// A Handler passes on the bytes of one connection. It returns when both ends
// have hung up or ctx has ended; then both are closed.
type Handler func(ctx context.Context, client, server *net.TCPConn)

// A Proxy stands between clients and one target. Its methods are safe for concurrent use.
type Proxy struct {
	target   string
	handle   Handler
	listener net.Listener
	running  sync.WaitGroup // its goroutines

	mu     sync.Mutex
	closed bool
	refuse bool
	open   map[*connection]struct{}
}

// A connection is one that was accepted and has not ended.
type connection struct {
	cancel context.CancelFunc

	// Guarded by Proxy.mu.
	ends []net.Conn
	cut  bool
}

// dialTimeout bounds each attempt to reach the target.
const dialTimeout = 30 * time.Second

// Start starts a proxy to the target, host:port, on a free port of loopback. The target is dialled for each connection,
// so it may be down in between: then the client's connection is closed.
func Start(target string, handle Handler) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, handle: handle, listener: l, open: map[*connection]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the proxy's host:port, for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Refuse makes the proxy hang up on new connections, or serve
// them again. Open ones stay: for a dead network call Cut next.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Cut closes all open connections at both ends, with what is on its way.
func (p *Proxy) Cut() {
	p.mu.Lock()
	open := slices.Collect(maps.Keys(p.open))
	var ends []net.Conn
	for _, c := range open {
		c.cut = true
		ends = append(ends, c.ends...)
	}
	p.mu.Unlock()
	for _, end := range ends { // before handlers wake up, which would still write
		_ = end.Close()
	}
	for _, c := range open {
		c.cancel()
	}
}

// Close ends the proxy with all its connections, and returns when nothing of it runs. It may be called again.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Cut()
	p.running.Wait()
}

// accept runs until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve dials the target for a client and hands both ends to the handler.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := &connection{cancel: cancel}
	if !p.attach(c, client) {
		return
	}
	defer p.detach(c)
	dialer := net.Dialer{Timeout: dialTimeout}
	server, err := dialer.DialContext(ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	if p.attach(c, server) {
		p.handle(ctx, client.(*net.TCPConn), server.(*net.TCPConn))
	}
}

// attach adds an end to a connection, so that Cut finds it, and reports whether the connection may go on.
func (p *Proxy) attach(c *connection, end net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse || c.cut {
		return false
	}
	c.ends = append(c.ends, end)
	p.open[c] = struct{}{}
	return true
}

func (p *Proxy) detach(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}
