// Package natsproxy is a TCP proxy between NATS clients and a nats-server that makes the network as bad as a test
// needs: it stalls, delays, cuts and refuses connections, and drops the acknowledgements of JetStream.
//
//	         +-------------- Stall: no byte passes ----------------+
//	client --+--> queue, Delay ------------------------------------+--> server
//	client <-+--- Delay, queue <-- DropAcks: messages parsed <-----+--- server
//
// It does not support TLS. A server that advertises others (connect_urls in INFO)
// shows its clients a way around the proxy.
package natsproxy

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/testkit/tcpproxy"
)

// A Proxy passes on what its clients and the server send. It begins transparent. Its methods are safe for concurrent
// use. Each switch holds for open connections and for those to come, until it is set again.
type Proxy struct {
	*tcpproxy.Proxy // accepts, refuses and cuts connections
	dropped         atomic.Int64

	mu      sync.Mutex
	stalled bool
	delay   time.Duration
	drop    func(stream string, seq uint64) bool // nil: none
	changed chan struct{}                        // closed when stalled changes
}

// Start starts a proxy to the target, host:port or a URL nats://host:port, on a free port of the loopback interface.
func Start(target string) (*Proxy, error) {
	p := &Proxy{changed: make(chan struct{})}
	core, err := tcpproxy.Start(strings.TrimPrefix(target, "nats://"), p.pass)
	if err != nil {
		return nil, fmt.Errorf("natsproxy: %w", err)
	}
	p.Proxy = core
	return p, nil
}

// pass is the handler of a connection.
func (p *Proxy) pass(ctx context.Context, client, server *net.TCPConn) {
	l := link{proxy: p}
	l.run(ctx, client, server)
}

// URL returns the proxy's address for NATS clients.
func (p *Proxy) URL() string { return "nats://" + p.Addr() }

// Pass resets all switches: nothing is stalled, delayed, refused or dropped.
func (p *Proxy) Pass() {
	p.Refuse(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled, p.delay, p.drop = false, 0, nil
	p.changedLocked()
}

// Stall holds back all bytes that connections send and receive, or lets them pass again; nothing is lost. The
// connections stay open, new ones are accepted, and the end of a connection is held back as well.
func (p *Proxy) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = on
	p.changedLocked()
}

func (p *Proxy) changedLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Delay makes every byte arrive d later, in each direction and in order; 0 or less means at once. Bytes on their way
// keep the delay that they left with. Throughput is not limited, up to 16 MB per d and direction.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = max(d, 0)
}

// DropAcks drops the messages to clients that acknowledge a JetStream publish, if drop reports true for their stream
// and sequence: the message is stored, and its publisher does not learn of it. [All] drops every one; nil, the default,
// none. Refusals of JetStream pass. The switch applies when a message arrives at the proxy. drop is called by many
// goroutines, and may call any method of the proxy but Close.
func (p *Proxy) DropAcks(drop func(stream string, seq uint64) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = drop
}

// All reports true for every acknowledgement.
func All(stream string, seq uint64) bool { return true }

// Dropped returns how many acknowledgements were dropped so far.
func (p *Proxy) Dropped() int64 { return p.dropped.Load() }

// drops reports whether to drop the acknowledgement, and counts it.
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

// due returns when bytes that arrive now must be passed on.
func (p *Proxy) due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.delay)
}

// gate waits while connections are stalled.
func (p *Proxy) gate(ctx context.Context) {
	for {
		p.mu.Lock()
		stalled, changed := p.stalled, p.changed
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
