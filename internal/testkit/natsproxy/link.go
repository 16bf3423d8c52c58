package natsproxy

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"
)

// A link is one connection through the proxy: a queue per direction, each with a
// goroutine that fills it and one that empties it.
type link struct{ proxy *Proxy }

const (
	// A queue holds queueLen chunks of at most about chunkSize bytes: 16 MB. When it is full, nothing more is read.
	queueLen  = 2048
	chunkSize = 8 << 10
)

// A chunk is bytes that are passed on together.
type chunk struct {
	data []byte
	due  time.Time
	last bool // the sender hung up after it
}

// A filter takes bytes that were read and returns those that may be passed on, in memory of its own; it may keep some
// back until it sees more. At the end of the stream it gets nil, and keeps nothing back.
type filter func(b []byte) (out []byte)

// run passes on bytes in both directions until both have ended.
func (l *link) run(ctx context.Context, client, server *net.TCPConn) {
	up, down := make(chan chunk, queueLen), make(chan chunk, queueLen)
	replies := parser{drops: l.proxy.drops}
	var wg sync.WaitGroup
	wg.Go(func() { l.read(ctx, client, up, bytes.Clone) })
	wg.Go(func() { l.write(ctx, server, up) })
	wg.Go(func() { l.read(ctx, server, down, replies.feed) })
	wg.Go(func() { l.write(ctx, client, down) })
	wg.Wait()
}

// read puts the bytes of a connection through the filter into the queue, until the stream ends.
func (l *link) read(ctx context.Context, from net.Conn, queue chan<- chunk, pass filter) {
	defer close(queue)
	buf := make([]byte, chunkSize)
	for last := false; !last; {
		n, err := from.Read(buf)
		c := chunk{due: l.proxy.due(), last: err != nil}
		c.data = pass(buf[:n])
		if last = c.last; last {
			c.data = append(c.data, pass(nil)...)
		}
		if len(c.data) == 0 && !last {
			continue
		}
		select {
		case queue <- c:
		case <-ctx.Done():
			return
		}
	}
}

// write empties the queue, each chunk when it is due. If the receiver takes no more, the rest is discarded: to close
// the connection would lose what is on its way in the other direction.
func (l *link) write(ctx context.Context, to *net.TCPConn, queue <-chan chunk) {
	for c := range queue {
		await(ctx, c.due)
		l.proxy.gate(ctx)
		if _, err := to.Write(c.data); err != nil {
			break
		}
		if c.last {
			_ = to.CloseWrite()
		}
	}
	for range queue {
	}
}

// await waits until t.
func await(ctx context.Context, t time.Time) {
	d := time.Until(t)
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
