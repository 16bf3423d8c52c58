package leafhttp

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxConnections bounds the connections, as Leaf's server does. So it also bounds the requests under way, one per
	// connection, and the delay of answers when more requests arrive than one machine answers.
	maxConnections = 10_000
	// maxRefused more connections get 503 for their first request, and are closed. Beyond them, connections are
	// closed at once.
	maxRefused = 1000
)

// A connections counts the open connections.
type connections struct {
	open atomic.Int64
}

// bound returns a listener that closes each connection beyond maxConnections and maxRefused.
func (c *connections) bound(l net.Listener) net.Listener { return &boundListener{l, c} }

// beyond is the key that marks the context of a connection beyond maxConnections.
type beyond struct{}

// mark marks the context of a connection beyond maxConnections.
func mark(ctx context.Context, c net.Conn) context.Context {
	if c.(*counted).beyond {
		return context.WithValue(ctx, beyond{}, true)
	}
	return ctx
}

// await waits until no connection is open, for patience at most.
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
		if n := l.of.open.Add(1); n <= maxConnections+maxRefused {
			release := sync.OnceFunc(func() { l.of.open.Add(-1) })
			return &counted{Conn: conn, beyond: n > maxConnections, release: release}, nil
		}
		l.of.open.Add(-1)
		_ = conn.Close()
	}
}

// A counted is a connection that counts as open until it is closed.
type counted struct {
	net.Conn
	beyond  bool
	release func()
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.release()
	return c.Conn.Close()
}
