// Package e2e starts a whole natsid for a test: a nats-server with JetStream
// inside the process, any number of workers, and a connection. It needs
// nothing installed, no fixed port and no fixed directory, so tests may run in
// parallel, in any project:
//
//	func TestInvoice(t *testing.T) {
//		ids := e2e.Start(t)
//		id, err := ids.Client.Segment(t.Context(), "invoice")
//		…
//	}
package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/subjects"
)

// startTimeout bounds how long a worker may take until it can issue.
const startTimeout = 30 * time.Second

// A Cluster is a natsid that runs for the time of one test: workers that share
// a nats-server. Tags are made on first use. Its methods fail the test rather
// than return an error, and must be called from the test's goroutine.
type Cluster struct {
	// URL is where the nats-server listens, on loopback.
	URL string
	// Conn is a connection to it, for requests of any kind.
	Conn *nats.Conn
	// Client asks for IDs on Conn.
	Client *client.Client

	tb        testing.TB
	ns        subjects.Namespace
	dir       string
	configure func(worker int, cfg *app.Config)
	workers   []*member
}

// A member is one worker of the cluster, whether it runs or not.
type member struct {
	cancel context.CancelFunc // nil while it does not run
	done   chan error
	where  app.Where
}

// An Option changes what Start starts.
type Option func(*options)

type options struct {
	workers   int
	namespace subjects.Namespace
	configure func(worker int, cfg *app.Config)
}

// WithWorkers makes it n workers, n at least 1. The default is 1.
func WithWorkers(n int) Option { return func(o *options) { o.workers = n } }

// WithNamespace makes the workers serve another namespace than "id".
func WithNamespace(ns string) Option {
	return func(o *options) { o.namespace = subjects.Namespace(ns) }
}

// WithConfig changes the settings of each worker before it starts. It serves the
// tests of natsid itself: other programs cannot name the settings.
func WithConfig(f func(worker int, cfg *app.Config)) Option {
	return func(o *options) { o.configure = f }
}

// Start starts a cluster and returns once each worker issues IDs of both
// modes. It is stopped when the test ends.
func Start(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	o := options{workers: 1, namespace: subjects.DefaultNamespace, configure: func(int, *app.Config) {}}
	for _, opt := range opts {
		opt(&o)
	}
	dir := tb.TempDir()
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", StoreDir: filepath.Join(dir, "nats")})
	if err != nil {
		tb.Fatalf("e2e: %v", err)
	}
	tb.Cleanup(srv.WaitForShutdown)
	tb.Cleanup(srv.Shutdown)
	c := &Cluster{URL: srv.ClientURL(), tb: tb, ns: o.namespace, dir: dir, configure: o.configure, workers: make([]*member, o.workers)}
	if c.Conn, err = nats.Connect(c.URL, nats.Name("e2e test")); err != nil {
		tb.Fatalf("e2e: %v", err)
	}
	tb.Cleanup(c.Conn.Close)
	c.Client = client.New(c.Conn, o.namespace)
	tb.Cleanup(c.stopAll)
	for i := range c.workers {
		c.StartWorker(i)
	}
	return c
}

// StartWorker starts worker i, counted from 0, again after StopWorker, with
// the data directory it had, and returns once it issues IDs.
func (c *Cluster) StartWorker(i int) {
	c.tb.Helper()
	if m := c.workers[i]; m != nil && m.cancel != nil {
		c.tb.Fatalf("e2e: worker %d runs already", i)
	}
	cfg := app.Default()
	cfg.NATS, cfg.Namespace = c.URL, c.ns
	cfg.Data, cfg.HTTP = filepath.Join(c.dir, fmt.Sprintf("worker-%d", i)), ""
	cfg.AutoCreateTags = true
	// All workers read one clock, so a number never used before can be used at once.
	cfg.MaxClockSkew = time.Millisecond
	cfg.Log = slog.New(slog.NewTextHandler(c.tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("worker", i)
	c.configure(i, &cfg)

	ready := make(chan app.Where, 1)
	cfg.Ready = func(w app.Where) { ready <- w }
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{cancel: cancel, done: make(chan error, 1)}
	c.workers[i] = m
	go func() { m.done <- app.Run(ctx, cfg) }()
	select {
	case m.where = <-ready:
	case err := <-m.done:
		m.cancel = nil
		cancel()
		c.tb.Fatalf("e2e: worker %d stopped: %v", i, err)
	case <-time.After(startTimeout):
		c.tb.Fatalf("e2e: worker %d issues no IDs after %v", i, startTimeout)
	}
}

// StopWorker stops worker i cleanly: it answers what it has been asked, and
// gives its worker number back.
func (c *Cluster) StopWorker(i int) {
	c.tb.Helper()
	if err := c.workers[i].stop(); err != nil {
		c.tb.Errorf("e2e: worker %d: %v", i, err)
	}
}

// WorkerNumber returns the worker number that worker i had when it was ready.
func (c *Cluster) WorkerNumber(i int) int { return c.workers[i].where.Number }

func (m *member) stop() error {
	if m == nil || m.cancel == nil {
		return nil
	}
	m.cancel()
	m.cancel = nil
	return <-m.done
}

func (c *Cluster) stopAll() {
	var wg sync.WaitGroup
	for i, m := range c.workers {
		wg.Go(func() {
			if err := m.stop(); err != nil {
				c.tb.Errorf("e2e: worker %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}
