package leafhttp

import (
	"context"
	"net"
	"net/http"
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

// A connection is the state of one connection, in the context of its requests.
type connection struct {
	beyond bool   // more than maxConnections were open
	called func() // counts a request; nil if none is counted
}

// connectionKey is the key of the connection in that context.
type connectionKey struct{}

// begin counts a connection. Beyond maxConnections and maxRefused it closes it at once.
func (s *Server) begin(ctx context.Context, c net.Conn) context.Context {
	n := s.open.Add(1)
	if n > maxConnections+maxRefused {
		_ = c.Close()
	}
	conn := &connection{beyond: n > maxConnections}
	if host, _, err := net.SplitHostPort(c.RemoteAddr().String()); err == nil && s.cfg.Called != nil {
		conn.called = s.cfg.Called(host)
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// ended counts a connection that is closed.
func (s *Server) ended(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		s.open.Add(-1)
	}
}

// connectionOf returns the connection of a request; one that came by way of none is like any.
func connectionOf(r *http.Request) *connection {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		return c
	}
	return &connection{}
}

// await waits until no connection is open, for patience at most.
func (s *Server) await(patience time.Duration) {
	for end := time.Now().Add(patience); s.open.Load() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}
