package app

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/worker"
)

// A serving is a worker on a connection of its own.
type serving struct {
	conn   *nats.Conn
	worker *worker.Worker
	leave  context.CancelFunc
	done   chan error // of Worker.Run
}

// serve answers requests until ctx ends. When the server it is connected to is
// about to stop, it moves to another one.
func (p *program) serve(ctx context.Context) error {
	now := p.startServing(ctx, p.links.serve)
	p.serving.Store(now)
	for {
		select {
		case err := <-now.done:
			return err
		case nc := <-p.links.leaving:
			if nc == now.conn {
				now = p.move(ctx, now)
			}
		}
	}
}

func (p *program) startServing(ctx context.Context, conn *nats.Conn) *serving {
	cfg := p.cfg
	s := &serving{conn: conn, done: make(chan error, 1)}
	s.worker = worker.New(worker.Config{
		Namespace: cfg.Namespace, Version: cfg.Version, Conn: conn,
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
		defer s.leave()
		s.done <- s.worker.Run(ctx)
	}()
	return s
}

// joinWithin bounds the wait for the new connection to serve before the old
// one is left: a server in lame duck mode sends nobody away for the first 10 s
// by default, 5 s in deploy/nats.conf.
const joinWithin = time.Second

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
// what was on its way is lost. Without another server it stays.
func (p *program) move(ctx context.Context, old *serving) *serving {
	conn, err := nats.Connect(others(p.cfg.NATS, old.conn.DiscoveredServers()), servingOptions(p.cfg, nil, p.links.leaving)...)
	if err != nil {
		p.cfg.Log.Warn("the NATS server is about to stop, and no other can be reached; staying until it has stopped", "error", WithoutURL(err))
		return old
	}
	p.cfg.Log.Info("the NATS server is about to stop; moving to another", "from", old.conn.ConnectedUrlRedacted(), "to", conn.ConnectedUrlRedacted())
	next := p.startServing(ctx, conn)
	for late := time.Now().Add(joinWithin); next.worker.SnowflakeTrouble() != nil && time.Now().Before(late); {
		select {
		case err := <-next.done:
			p.cfg.Log.Error("cannot serve on another NATS server; staying until this one has stopped", "error", err)
			return old
		case <-time.After(10 * time.Millisecond):
		}
	}
	p.serving.Store(next)
	old.leave()
	if err := <-old.done; err != nil {
		p.cfg.Log.Error("the old connection was not left cleanly", "error", err)
	}
	return next
}
