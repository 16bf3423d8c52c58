package mysqltest

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/tcpproxy"
)

// A Link is a TCP proxy between clients and a server, which counts bytes and can end a connection after any number of
// them. It starts transparent. Its methods are safe for concurrent use.
type Link struct {
	core *tcpproxy.Proxy

	mu     sync.Mutex
	limits [2]int   // of connections to come, by direction; < 0 is none
	passed [2]int64 // bytes, by direction
	open   map[*wire]struct{}
}

// Directions, and the ends that bytes come from.
const (
	fromClient = iota
	fromServer
)

// A wire is one connection through a link.
type wire struct {
	link *Link
	ends [2]*net.TCPConn

	// Guarded by link.mu.
	left [2]int // bytes until the cut, by direction; < 0 is no limit
	gone bool   // cut
}

// lingerMax is how long a cut connection waits for both ends to hang up.
const lingerMax = time.Second

// Proxy starts a link to the target, host:port, on a free port of the loopback interface. It ends with the test. The
// target is dialled for every connection, so it may be down in between.
func Proxy(tb testing.TB, target string) *Link {
	tb.Helper()
	l := &Link{limits: [2]int{-1, -1}, open: map[*wire]struct{}{}}
	core, err := tcpproxy.Start(target, l.pass)
	if err != nil {
		tb.Fatalf("mysqltest: %v", err)
	}
	l.core = core
	tb.Cleanup(core.Close)
	return l
}

// Addr returns the link's host:port, for clients.
func (l *Link) Addr() string { return l.core.Addr() }

// CutAfter makes each connection accepted from now on end once fromClient bytes of the client's, or fromServer bytes of
// the server's, have been passed on, whichever comes first; -1 is never, 0 at once. The far end of that direction gets
// every byte up to the limit; then both see the end of the stream, and nothing is passed on in either direction. Open
// connections stay as they are. The counters start at 0 again.
func (l *Link) CutAfter(fromClient, fromServer int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits = [2]int{fromClient, fromServer}
	l.passed = [2]int64{}
}

// CutOpenAfter does the same to the connections that are open, and not to later ones. It counts from now, so that a
// test of one exchange need not go through the handshake byte by byte. The counters start at 0 again.
func (l *Link) CutOpenAfter(fromClient, fromServer int) {
	limits := [2]int{fromClient, fromServer}
	l.mu.Lock()
	l.passed = [2]int64{}
	for w := range l.open {
		w.left = limits
	}
	l.mu.Unlock()
	if spent(limits) {
		l.Drop()
	}
}

// Pass makes the link transparent again: for connections to come, and for open
// ones that are not cut yet. The counters start at 0 again.
func (l *Link) Pass() {
	l.Refuse(false)
	l.CutAfter(-1, -1)
	l.CutOpenAfter(-1, -1)
}

// Refuse makes the link hang up on new connections, or serve them again. Open ones stay; for those see [Link.Drop].
func (l *Link) Refuse(on bool) { l.core.Refuse(on) }

// Drop cuts all open connections.
func (l *Link) Drop() { l.core.Cut() }

// Bytes returns how many bytes were passed on in each direction, over all
// connections, since the counters last started at 0.
func (l *Link) Bytes() (fromClient, fromServer int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.passed[0], l.passed[1]
}

// pass is the handler of a connection.
func (l *Link) pass(_ context.Context, client, server *net.TCPConn) {
	w := &wire{link: l, ends: [2]*net.TCPConn{client, server}}
	defer l.remove(w)
	if !l.add(w) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { w.pump(fromClient) })
	wg.Go(func() { w.pump(fromServer) })
	wg.Wait()
}

// add gives a connection the limits that hold now, and reports whether they let anything pass.
func (l *Link) add(w *wire) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.left = l.limits
	l.open[w] = struct{}{}
	return !spent(l.limits)
}

func (l *Link) remove(w *wire) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, w)
}

// pump passes on what comes from one end. After a cut it reads on to the end of the stream: if a connection is closed
// with bytes unread, the system discards those on their way to the other side.
func (w *wire) pump(from int) {
	src, dst := w.ends[from], w.ends[1-from]
	defer dst.CloseWrite()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		pass, last := w.take(from, n)
		if _, err := dst.Write(buf[:pass]); err != nil {
			last = true
		}
		if last || err != nil && err != io.EOF {
			w.cut()
		}
		if err != nil {
			return
		}
	}
}

// take returns how many of n bytes may be passed on, and whether the limit is reached with them.
func (w *wire) take(from, n int) (pass int, last bool) {
	l := w.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.gone {
		return 0, false
	}
	if left := w.left[from]; left >= 0 {
		n = min(n, left)
		w.left[from] -= n
		last = n == left
	}
	l.passed[from] += int64(n)
	return n, last
}

// cut ends the stream for both ends, once.
func (w *wire) cut() {
	w.link.mu.Lock()
	was := w.gone
	w.gone = true
	w.link.mu.Unlock()
	if was {
		return
	}
	for _, end := range w.ends {
		_ = end.SetDeadline(time.Now().Add(lingerMax))
		_ = end.CloseWrite()
	}
}

func spent(limits [2]int) bool { return limits[fromClient] == 0 || limits[fromServer] == 0 }
