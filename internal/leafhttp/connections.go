package leafhttp

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// maxConnections bounds the connections, as Leaf's server does. So it also bounds the requests under way, one for each
// connection, and how late they can be answered where more are sent than one machine answers.
const maxConnections = 10_000

// A connections counts those that are open.
type connections struct {
	open atomic.Int64
}

// bound returns a listener that closes each connection beyond maxConnections before a request is read from it.
func (c *connections) bound(l net.Listener) net.Listener { return &boundListener{l, c} }

// await waits until none is open, or for so long.
func (c *connections) await(patience time.Duration) {
	for end := time.Now().Add(patience); c.open.Load() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

type boundListener struct {
	net.Listener
	of *connections
}

// Accept implements [net.Listener].
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.of.open.Add(1) <= maxConnections {
			return &counted{Conn: conn, gone: sync.OnceFunc(func() { l.of.open.Add(-1) })}, nil
		}
		l.of.open.Add(-1)
		_ = conn.Close()
	}
}

// A counted is a connection that counts as open until it is closed.
type counted struct {
	net.Conn
	gone func()
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.gone()
	return c.Conn.Close()
}
