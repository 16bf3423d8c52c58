package leafhttp

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxConnections bounds the connections, as Leaf's server does. So it also bounds the requests under way, one for
	// each connection, and how late they can be answered where more are sent than one machine answers.
	maxConnections = 10_000
	// So many more get 503 for their first request, and are closed. Beyond them, connections are closed at once.
	maxRefused = 1000
)

// A connections counts those that are open.
type connections struct {
	open atomic.Int64
}

// bound returns a listener that closes each connection beyond maxConnections and maxRefused.
func (c *connections) bound(l net.Listener) net.Listener { return &boundListener{l, c} }

// beyond is the key under which the context of a connection says that it is one too many.
type beyond struct{}

// mark marks the context of a connection that is one too many.
func mark(ctx context.Context, c net.Conn) context.Context {
	if c.(*counted).beyond {
		return context.WithValue(ctx, beyond{}, true)
	}
	return ctx
}

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
		if n := l.of.open.Add(1); n <= maxConnections+maxRefused {
			gone := sync.OnceFunc(func() { l.of.open.Add(-1) })
			return &counted{Conn: conn, beyond: n > maxConnections, gone: gone}, nil
		}
		l.of.open.Add(-1)
		_ = conn.Close()
	}
}

// A counted is a connection that counts as open until it is closed.
type counted struct {
	net.Conn
	beyond bool
	gone   func()
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.gone()
	return c.Conn.Close()
}
