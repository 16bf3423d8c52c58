// Package natsproxy is a TCP proxy between NATS clients and a nats-server that
// makes the network as bad as a test wants it: it stalls, delays, cuts and
// refuses connections, and swallows the acknowledgements of JetStream.
//
//	         +------------ Stall: all bytes stand still -----------+
//	client --+--> queue, Delay ------------------------------------+--> server
//	client <-+--- Delay, queue <-- DropAcks: messages parsed <-----+--- server
//
// It understands no TLS. A server that tells its clients of others
// (connect_urls in INFO) shows them a way around the proxy.
package natsproxy

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Proxy passes on what its clients and the server say. It begins transparent.
// Its methods are safe for concurrent use, and each switch holds from then on
// until it is set anew, for open connections and for those to come.
type Proxy struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup // of its goroutines
	dropped  atomic.Int64

	mu      sync.Mutex
	closed  bool
	refuse  bool
	stalled map[string]bool // by name of the client; "" is all
	delay   time.Duration
	drop    func(stream string, seq uint64) bool // nil: none
	changed chan struct{}                        // closed when stalled changes
	links   map[*link]struct{}
}

// dialMax is how long a connection to the server may take to be made.
const dialMax = 5 * time.Second

// Start starts a proxy to the target, host:port or a URL nats://host:port, on
// a free port of the loopback interface. The server is dialled for each
// connection, so that it may be down in between; then the client's is closed.
func Start(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("natsproxy: %w", err)
	}
	p := &Proxy{
		target:   strings.TrimPrefix(target, "nats://"),
		listener: l,
		stalled:  map[string]bool{},
		changed:  make(chan struct{}),
		links:    map[*link]struct{}{},
	}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns the proxy's host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL returns the same for NATS clients.
func (p *Proxy) URL() string { return "nats://" + p.Addr() }

// Close ends the proxy with all its connections, and returns when nothing of
// it runs. It may be called again.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Cut()
	p.wg.Wait()
}

// Pass sets all switches back: nothing is stalled, delayed, refused or dropped.
func (p *Proxy) Pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse, p.delay, p.drop = false, 0, nil
	clear(p.stalled)
	p.changedLocked()
}

// Stall holds back all that connections of the NATS client name send and
// receive, or lets it pass again; nothing is lost. They stay open and new ones
// are accepted; that an end has hung up is held back as well. A name is known
// once the server has accepted the connection, so clients still connect. With
// the name "" all connections are stalled from their first byte. Each name has
// a switch of its own, and so has "".
func (p *Proxy) Stall(on bool, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.stalled[name] = true
	} else {
		delete(p.stalled, name)
	}
	p.changedLocked()
}

func (p *Proxy) changedLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Delay makes every byte arrive d later, in each direction, in its order; 0 or
// less means at once. What is on its way keeps the delay that it left with.
// Throughput stays, up to 16 MB per d and direction.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = max(d, 0)
}

// Refuse makes the proxy hang up on connections that are not made yet, or serve
// them again. Open ones stay: for a dead network call Cut next.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Cut closes all open connections at both ends, with what is on its way.
func (p *Proxy) Cut() {
	p.mu.Lock()
	open := slices.Collect(maps.Keys(p.links))
	var ends []net.Conn
	for _, l := range open {
		l.dead = true
		ends = append(ends, l.ends...)
	}
	p.mu.Unlock()
	for _, c := range ends { // first, or else what waits would still be written
		_ = c.Close()
	}
	for _, l := range open {
		l.cut()
	}
}

// DropAcks makes messages to clients vanish that acknowledge a JetStream
// publish, if drop reports true of their stream and sequence: what was
// published is stored, and the publisher does not learn of it. [All] drops
// every one; nil, the default, none. Refusals of JetStream pass. What counts is
// the time at which a message arrives at the proxy. drop is called by many
// goroutines; it may call methods of the proxy but Close.
func (p *Proxy) DropAcks(drop func(stream string, seq uint64) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = drop
}

// All is true of all acknowledgements.
func All(stream string, seq uint64) bool { return true }

// Dropped returns how many acknowledgements were swallowed so far.
func (p *Proxy) Dropped() int64 { return p.dropped.Load() }

// drops reports whether the acknowledgement is to be swallowed, and counts it.
func (p *Proxy) drops(stream string, seq uint64) bool {
	p.mu.Lock()
	drop := p.drop
	p.mu.Unlock()
	if drop == nil || !drop(stream, seq) {
		return false
	}
	p.dropped.Add(1)
	return true
}

// due returns when bytes that arrive now are to be passed on.
func (p *Proxy) due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.delay)
}

// gate waits while connections of the name are stalled.
func (p *Proxy) gate(ctx context.Context, name func() string) {
	for {
		p.mu.Lock()
		stalled, changed := p.stalled[""] || p.stalled[name()], p.changed
		p.mu.Unlock()
		if !stalled {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// accept runs until the listener is closed.
func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

// serve passes on one connection until both ends have hung up or it is cut.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	ctx, cut := context.WithCancel(context.Background())
	defer cut()
	l := &link{proxy: p, cut: cut}
	if !p.attach(l, client) {
		return
	}
	defer p.detach(l)
	dialer := net.Dialer{Timeout: dialMax}
	server, err := dialer.DialContext(ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	if p.attach(l, server) {
		l.run(ctx, client.(*net.TCPConn), server.(*net.TCPConn))
	}
}

// attach adds an end to a link, so that Cut finds it, and reports whether the
// link may live.
func (p *Proxy) attach(l *link, end net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse || l.dead {
		return false
	}
	l.ends = append(l.ends, end)
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) detach(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
