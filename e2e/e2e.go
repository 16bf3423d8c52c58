// Package e2e starts a whole natsid for a test: a nats-server with JetStream
// inside the process, any number of workers, and a client. It needs nothing
// installed, no fixed port and no fixed directory, so tests of any project may
// use it, in parallel:
//
//	func TestInvoice(t *testing.T) {
//		ids := e2e.Start(t)
//		id, err := ids.Client.Segment("invoice").Next(t.Context())
//		…
//	}
//
// A start takes about 0.2 s with one worker, and 1 s with several. [Cluster.Stall]
// and others play faults; `natsid test-server` plays the same ones for tests in
// other languages.
package e2e

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testbed"
	"github.com/natsid/natsid/subjects"
)

// A Cluster is a natsid that runs until its test ends: workers that share a
// nats-server, and create tags on first use. Its methods fail the test instead
// of returning an error, and must be called from the test's goroutine.
type Cluster struct {
	// URL is the address of the nats-server, on loopback.
	URL string
	// Conn is a connection to it, for requests of any kind.
	Conn *nats.Conn
	// Client requests IDs over Conn. It is safe for concurrent use, as Conn is.
	Client *client.Client

	tb  testing.TB
	bed *testbed.Cluster
}

// An Option changes what [Start] starts.
type Option func(*testbed.Config)

// WithWorkers starts n workers, n at least 1. The default is 1.
func WithWorkers(n int) Option { return func(c *testbed.Config) { c.Workers = n } }

// WithNamespace makes the workers serve another namespace than "id".
func WithNamespace(ns string) Option {
	return func(c *testbed.Config) { c.Namespace = subjects.Namespace(ns) }
}

// WithMySQL keeps the tags in a table of MySQL, user:password@tcp(host:port)/database, as Leaf does.
func WithMySQL(dsn string) Option {
	return configure(func(_ int, cfg *app.Config) { cfg.MySQL = dsn })
}

// WithClock makes worker i, counted from 0, read its wall clock by now(i). It must be safe for concurrent use.
func WithClock(now func(i int) time.Time) Option {
	return configure(func(i int, cfg *app.Config) { cfg.Now = func() time.Time { return now(i) } })
}

// configure adds to what is configured already.
func configure(more func(i int, cfg *app.Config)) Option {
	return func(c *testbed.Config) {
		before := c.Configure
		c.Configure = func(i int, cfg *app.Config) {
			before(i, cfg)
			more(i, cfg)
		}
	}
}

// Start starts a cluster, and returns once each worker issues IDs of both
// modes. The cluster stops when the test ends.
func Start(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	cfg := testbed.Config{
		Dir: tb.TempDir(), Workers: 1, Namespace: subjects.DefaultNamespace, Configure: func(int, *app.Config) {},
	}
	for _, opt := range opts {
		opt(&cfg)
	}
	more := cfg.Configure
	cfg.Configure = func(i int, cfg *app.Config) {
		log := slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})
		cfg.Log = slog.New(log).With("worker", i)
		more(i, cfg)
	}
	bed, err := testbed.Start(cfg)
	if err != nil {
		tb.Fatalf("e2e: %v", err)
	}
	tb.Cleanup(func() {
		if err := bed.Stop(); err != nil {
			tb.Errorf("e2e: %v", err)
		}
	})
	conn, err := nats.Connect(bed.URL, nats.Name("e2e test"), nats.Timeout(time.Minute))
	if err != nil {
		tb.Fatalf("e2e: cannot connect to the nats-server: %v", err)
	}
	tb.Cleanup(conn.Close)
	return &Cluster{
		URL: bed.URL, Conn: conn, Client: client.New(conn, client.Namespace(string(cfg.Namespace))), tb: tb, bed: bed,
	}
}

// StartWorker starts worker i, counted from 0, again after [Cluster.StopWorker],
// on the data directory it had. It returns once the worker issues IDs.
func (c *Cluster) StartWorker(i int) {
	c.tb.Helper()
	c.must(c.bed.StartWorker(i))
}

// StopWorker stops worker i cleanly: it answers the requests it has taken, and
// releases its worker number. It does nothing if the worker does not run.
func (c *Cluster) StopWorker(i int) {
	c.tb.Helper()
	if err := c.bed.StopWorker(i); err != nil {
		c.tb.Errorf("e2e: %v", err)
	}
}

// WorkerNumber returns the worker number that worker i had when [Start] or
// [Cluster.StartWorker] last returned.
func (c *Cluster) WorkerNumber(i int) int { return c.bed.Where(i).Number }
