package leafhttp

import (
	"context"
	"net"
	"net/http"
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

// connection is the key of the connection in the context of its requests.
type connection struct{}

// mark puts a connection into the context of its requests.
func (s *Server) mark(ctx context.Context, c net.Conn) context.Context {
	conn := c.(*counted)
	if host, _, err := net.SplitHostPort(c.RemoteAddr().String()); err == nil && s.cfg.Called != nil {
		conn.called = s.cfg.Called(host)
	}
	return context.WithValue(ctx, connection{}, conn)
}

// connectionOf returns the connection of a request; one that came by way of none is like any.
func connectionOf(r *http.Request) *counted {
	if c, ok := r.Context().Value(connection{}).(*counted); ok {
		return c
	}
	return &counted{}
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
	called  func() // counts a request; nil if none is counted
	release func()
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.release()
	return c.Conn.Close()
}
