package app

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/worker"
)

// A serving is a worker that runs on a serving connection.
type serving struct {
	conn   servingConn
	worker *worker.Worker
	leave  context.CancelFunc
	done   chan struct{} // closed when the worker has stopped
	err    error         // what it returned, valid once done is closed
}

// A front answers requests with one worker at a time, or for a moment with two:
// when the server of its connection is about to stop, it moves to another one.
type front struct {
	cfg    Config
	worker worker.Config // of each worker, but for Conn
	now    atomic.Pointer[serving]
}

// current returns what serves, and reports whether it is connected to NATS.
func (f *front) current() (s *serving, connected bool) {
	s = f.now.Load()
	return s, s != nil && s.conn.IsConnected()
}

// wake makes the worker look at once at what it can serve.
func (f *front) wake() {
	if s := f.now.Load(); s != nil {
		s.worker.Wake()
	}
}

// lag returns how late requests of a mode are answered.
func (f *front) lag(mode worker.Mode) time.Duration {
	if s := f.now.Load(); s != nil {
		return s.worker.Lag(mode)
	}
	return 0
}

// serve answers requests on conn, or where it moves to, until ctx ends.
func (f *front) serve(ctx context.Context, conn servingConn) error {
	now := f.start(ctx, conn)
	f.now.Store(now)
	for {
		select {
		case <-now.done:
			return now.err
		case <-now.conn.leaving:
			now = f.move(ctx, now)
		}
	}
}

// start starts a worker, on the allocator and the issuer that all workers of the
// process share.
func (f *front) start(ctx context.Context, conn servingConn) *serving {
	cfg := f.worker
	cfg.Conn = conn.Conn
	s := &serving{conn: conn, worker: worker.New(cfg), done: make(chan struct{})}
	ctx, s.leave = context.WithCancel(ctx)
	go func() {
		defer close(s.done)
		defer s.leave()
		s.err = s.worker.Run(ctx)
	}()
	return s
}

// move serves on another server before it leaves the old one, as at a stop: a
// server that stops disconnects its clients, and messages under way are lost.
// Where no other server can be reached, the old one is served until it is gone.
func (f *front) move(ctx context.Context, old *serving) *serving {
	next, err := f.startElsewhere(ctx, old)
	if err != nil {
		if ctx.Err() == nil {
			f.cfg.Log.Warn("the NATS server is about to stop, and no other one can be joined; staying until it has "+
				"stopped: requests under way then may be lost", "error", WithoutURL(err))
		}
		return old
	}
	select {
	case <-time.After(spread):
	case <-ctx.Done():
	}
	f.now.Store(next)
	old.leave()
	if <-old.done; old.err != nil {
		f.cfg.Log.Error("the old NATS server was not left cleanly; requests under way may be lost", "error", old.err)
	}
	return next
}

// startElsewhere starts a worker on a connection to another server, and returns
// once it serves.
func (f *front) startElsewhere(ctx context.Context, old *serving) (*serving, error) {
	conn := servingConn{leaving: make(chan struct{}, 1)}
	cfg := f.cfg
	cfg.NATS = others(cfg.NATS, old.conn.DiscoveredServers())
	// The timeout is for each server: the old one waits for the new one.
	opts := append(servingOptions(cfg, nil, conn.leaving), nats.Timeout(time.Second))
	var err error
	if conn.Conn, err = Join(cfg, opts); err != nil {
		return nil, err
	}
	f.cfg.Log.Info("the NATS server is about to stop; moving to another one",
		"from", Redact(old.conn.ConnectedUrl()), "to", Redact(conn.ConnectedUrl()))
	next := f.start(ctx, conn)
	if err := next.joined(); err != nil {
		next.leave()
		<-next.done
		return nil, err
	}
	return next, nil
}

// others returns the URLs of all servers that are known: those given, and those
// that a server announced, with the user of the first one given.
func others(given string, announced []string) string {
	first, _, _ := strings.Cut(given, ",")
	u, err := url.Parse(first)
	if err != nil || u.User == nil {
		return strings.Join(append([]string{given}, announced...), ",")
	}
	for _, s := range announced {
		if t, err := url.Parse(s); err == nil {
			t.User = u.User
			given += "," + t.String()
		}
	}
	return given
}

// joinWithin bounds the wait for snowflakes, which this worker may not serve at
// the moment. A server in lame duck mode disconnects no client for the first
// 10 s by default, 5 s in deploy/nats.conf.
const joinWithin = time.Second

// spread is how long both servers are served. The new one announces to its
// cluster that requests may go to it, and nothing says when the others know.
// They must not learn before that the old one takes no more.
const spread = 300 * time.Millisecond

// joined waits until a worker that was started serves, and its server knows.
func (s *serving) joined() error {
	for late := time.Now().Add(joinWithin); s.worker.Trouble(worker.Snowflake) != nil && time.Now().Before(late); {
		select {
		case <-s.done:
			return errors.Join(errors.New("the worker does not serve on it"), s.err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return s.conn.FlushTimeout(joinWithin)
}
