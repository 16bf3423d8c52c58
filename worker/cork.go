package worker

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// A Cork dials the connection of one membership. It can hold back writes for a moment, so that the server reads them in
// one piece. Use it for one [nats.Conn], as its CustomDialer or its InProcessServer. The zero value dials TCP.
type Cork struct {
	// Inside, if set, is the server in this process to connect to.
	Inside nats.InProcessConnProvider
	latest atomic.Pointer[corked]
}

// dialTimeout is how long a dial may take.
const dialTimeout = 2 * time.Second

// Dial implements [nats.CustomDialer].
func (c *Cork) Dial(network, address string) (net.Conn, error) {
	return c.wrap(net.DialTimeout(network, address, dialTimeout))
}

// InProcessConn implements [nats.InProcessConnProvider].
func (c *Cork) InProcessConn() (net.Conn, error) { return c.wrap(c.Inside.InProcessConn()) }

func (c *Cork) wrap(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	k := &corked{Conn: conn}
	c.latest.Store(k)
	return k, nil
}

// corkOf returns the Cork that has dialed a connection, nil if there is none.
func corkOf(nc *nats.Conn) *Cork {
	c, ok := nc.Opts.CustomDialer.(*Cork)
	if !ok {
		c, _ = nc.Opts.InProcessServer.(*Cork)
	}
	return c
}

// together calls f, and makes the server read in one piece what f sends on nc, a connection that this cork has dialed.
// f must not block.
func (c *Cork) together(nc *nats.Conn, f func()) {
	k := c.latest.Load()
	k.hold(1)
	f()
	_ = nc.FlushTimeout(1) // a flush writes first, then waits for the answer
	k.hold(-1)
	_ = nc.FlushTimeout(1)
}

// A corked is a connection whose writes can be held back.
type corked struct {
	net.Conn

	mu    sync.Mutex
	holds int // callers of together; writes are held back while it is above 0
	held  []byte
}

func (k *corked) hold(more int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holds += more
}

// Write implements [net.Conn].
func (k *corked) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holds > 0 {
		k.held = append(k.held, b...)
		return len(b), nil
	}
	if len(k.held) == 0 {
		return k.Conn.Write(b)
	}
	all := append(k.held, b...)
	k.held = nil
	n, err := k.Conn.Write(all)
	if err != nil {
		_ = k.Conn.Close() // Write has reported success for the held bytes: the stream has a gap
	}
	return max(0, n-(len(all)-len(b))), err
}
