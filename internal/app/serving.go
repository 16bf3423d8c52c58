package app

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/worker"
)

// A serving is a worker on a connection of its own.
type serving struct {
	conn   servingConn
	worker *worker.Worker
	leave  context.CancelFunc
	done   chan struct{} // closed when the worker has stopped
	err    error         // what it returned, once done is closed
}

// serve answers requests until ctx ends. When the server it is connected to is
// about to stop, it moves to another one.
func (p *program) serve(ctx context.Context) error {
	defer p.quit()
	now := p.startServing(ctx, p.links.serve)
	p.serving.Store(now)
	for {
		select {
		case <-now.done:
			return now.err
		case <-now.conn.leaving:
			now = p.move(ctx, now)
		}
	}
}

func (p *program) startServing(ctx context.Context, conn servingConn) *serving {
	cfg := p.cfg
	s := &serving{conn: conn, done: make(chan struct{})}
	s.worker = worker.New(worker.Config{
		Namespace: cfg.Namespace, Version: cfg.Version, Conn: conn.Conn,
		Segments: p.segments, Store: p.store, Snowflakes: p.issuer, Layout: cfg.Layout,
		Number: func() (int, bool, any) {
			who, held := p.keeper.Who()
			return who.Number, held, who
		},
		Instance: func() string { return p.keeper.Status().Instance },
		MaxBatch: cfg.MaxBatch, Deadline: cfg.Deadline, Observe: p.metrics.Answered, Log: cfg.Log,
	})
	ctx, s.leave = context.WithCancel(ctx)
	go func() {
		defer close(s.done)
		defer s.leave()
		s.err = s.worker.Run(ctx)
	}()
	return s
}

// others returns the URLs of all servers that are known: those given, and those
// that a server told of, with the user of the first one given.
func others(given string, told []string) string {
	first, _, _ := strings.Cut(given, ",")
	u, err := url.Parse(first)
	if err != nil || u.User == nil {
		return strings.Join(append([]string{given}, told...), ",")
	}
	for _, s := range told {
		if t, err := url.Parse(s); err == nil {
			t.User = u.User
			given += "," + t.String()
		}
	}
	return given
}

// move serves on a connection to another server first, and leaves the old one
// after, as at a stop: a server that stops hangs up on whoever is connected, and
// what was on its way is lost. Where that cannot be had it stays.
func (p *program) move(ctx context.Context, old *serving) *serving {
	stay := func(why error) *serving {
		if ctx.Err() == nil {
			p.cfg.Log.Warn("the NATS server is about to stop, and no other can be served on; staying until it has stopped", "error", WithoutURL(why))
		}
		return old
	}
	conn := servingConn{leaving: make(chan struct{}, 1)}
	opts := append(servingOptions(p.cfg, nil, conn.leaving), nats.Timeout(time.Second)) // for each server: the old one waits
	var err error
	if conn.Conn, err = nats.Connect(others(p.cfg.NATS, old.conn.DiscoveredServers()), opts...); err != nil {
		return stay(err)
	}
	p.cfg.Log.Info("the NATS server is about to stop; moving to another", "from", old.conn.ConnectedUrlRedacted(), "to", conn.ConnectedUrlRedacted())
	next := p.startServing(ctx, conn)
	if err := next.joined(); err != nil {
		next.leave()
		<-next.done
		return stay(err)
	}
	select {
	case <-time.After(spread):
	case <-ctx.Done():
	}
	p.serving.Store(next)
	old.leave()
	if <-old.done; old.err != nil {
		p.cfg.Log.Error("the old connection was not left cleanly", "error", old.err)
	}
	return next
}

// joinWithin bounds the wait for snowflakes, which this worker may not serve at
// the moment. A server in lame duck mode sends nobody away for the first 10 s by
// default, 5 s in deploy/nats.conf.
const joinWithin = time.Second

// spread is how long both are served: the new server tells the others of its
// cluster that requests may go to it, and nothing says when they know. They
// must not learn before that the old one takes no more.
const spread = 300 * time.Millisecond

// joined waits until a worker that was started serves, and its server knows.
func (s *serving) joined() error {
	for late := time.Now().Add(joinWithin); s.worker.SnowflakeTrouble() != nil && time.Now().Before(late); {
		select {
		case <-s.done:
			return errors.Join(errors.New("it does not serve"), s.err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return s.conn.FlushTimeout(joinWithin)
}
