package worker

import (
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// A Cork opens the connections that a worker serves on, and can hold back for a moment
// what is written to them: the server then reads it at once. It is used by one
// [nats.Conn], as its custom dialer or its in-process server. The zero value dials TCP.
type Cork struct {
	// Inside, if set, is the server in this process to connect to.
	Inside nats.InProcessConnProvider
	latest atomic.Pointer[corked]

	mu      sync.Mutex
	leaving []*nats.Subscription // drained ones; some may be gone
	refused time.Time            // the first dial that was refused for them since a connection was made; 0 if none was
	dragged []*nats.Subscription // those that were there at the last dial
}

const (
	// dialTimeout is how long a dial may take.
	dialTimeout = 2 * time.Second
	// leavingTimeout is for how long no dial is made for the sake of what is drained. It takes a poll of the client,
	// 100 ms, once all that was delivered is handled, and handlers do not block.
	leavingTimeout = 2 * time.Second
)

var errLeaving = errors.New("worker: queue groups are being left")

// Dial implements [nats.CustomDialer]. It fails while subscriptions are drained, so the client tries again soon.
func (c *Cork) Dial(network, address string) (net.Conn, error) {
	if c.waits() {
		return nil, errLeaving
	}
	return c.wrap(net.DialTimeout(network, address, dialTimeout))
}

// InProcessConn implements [nats.InProcessConnProvider]. It fails as Dial does.
func (c *Cork) InProcessConn() (net.Conn, error) {
	if c.waits() {
		return nil, errLeaving
	}
	return c.wrap(c.Inside.InProcessConn())
}

// leave notes subscriptions that are drained from now on, so that no new connection is made while some are: the client
// would subscribe to them again, and drop what arrives once they are drained. Those in no queue group do not matter.
// nil does nothing.
func (c *Cork) leave(subs []*nats.Subscription) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = append(slices.DeleteFunc(c.leaving, isGone), subs...)
	c.leaving = slices.DeleteFunc(c.leaving, func(s *nats.Subscription) bool { return s.Queue == "" })
}

// drags returns what was drained when the present connection was dialed: the client has subscribed to it again. Some
// may be gone: what arrives for them is dropped.
func (c *Cork) drags() []*nats.Subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dragged
}

// waits reports whether a dial must wait for what is drained.
func (c *Cork) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = slices.DeleteFunc(c.leaving, isGone)
	if c.dragged = slices.Clone(c.leaving); len(c.dragged) == 0 {
		c.refused = time.Time{}
		return false
	}
	if c.refused.IsZero() {
		c.refused = time.Now()
	}
	return time.Since(c.refused) < leavingTimeout
}

func isGone(sub *nats.Subscription) bool { return !sub.IsValid() }

// corkOf returns what has dialed a connection; nil if that is no Cork.
func corkOf(nc *nats.Conn) *Cork {
	c, ok := nc.Opts.CustomDialer.(*Cork)
	if !ok {
		c, _ = nc.Opts.InProcessServer.(*Cork)
	}
	return c
}

func (c *Cork) wrap(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.refused = time.Time{}
	c.mu.Unlock()
	k := &corked{Conn: conn}
	c.latest.Store(k)
	return k, nil
}

// together lets the server read at once all that f sends on nc, which this cork has
// dialed. f must not block.
func (c *Cork) together(nc *nats.Conn, f func()) {
	k := c.latest.Load()
	k.hold(1)
	f()
	_ = nc.FlushTimeout(1) // writes all before it waits for an answer
	k.hold(-1)
	_ = nc.FlushTimeout(1)
}

// A corked is a connection whose writes can be held back.
type corked struct {
	net.Conn

	mu    sync.Mutex
	holds int // how many hold back at the moment
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
		_ = k.Conn.Close() // what was held counts as written, so whoever wrote it would go on behind a gap
	}
	return max(0, n-(len(all)-len(b))), err
}
