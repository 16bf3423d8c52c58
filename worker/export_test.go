package worker

import "github.com/nats-io/nats.go"

// Conn returns the connection on which the worker serves, nil before the first.
func (w *Worker) Conn() *nats.Conn {
	if m := w.now.Load(); m != nil {
		return m.link.conn
	}
	return nil
}

// IsConnected reports whether the worker serves on a connection.
func (w *Worker) IsConnected() bool { return w.current() != nil }

// TakeRelays leaves room for n relays on the present connection, until give is called.
func (w *Worker) TakeRelays(n int64) (give func()) {
	l := w.now.Load().link
	l.relays.Add(mostRelays - n)
	return func() { l.relays.Add(n - mostRelays) }
}
