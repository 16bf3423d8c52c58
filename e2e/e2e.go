// Package e2e starts a whole natsid for a test: a nats-server with JetStream inside the process, any number of workers,
// and a client. It needs no installed program, no fixed port and no fixed directory, so parallel tests of any project
// may use it:
//
//	func TestInvoice(t *testing.T) {
//		ids := e2e.Start(t, e2e.Config{})
//		id, err := ids.Segment("invoice").Next(t.Context())
//		…
//	}
//
// A start takes about 0.2 s with one worker, and 1 s with several. Methods such as [Cluster.Stall] cause faults.
// `natsid test-server` causes the same faults for tests in other languages.
package e2e

import (
	"cmp"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testbed"
	"github.com/natsid/natsid/number"
	"github.com/natsid/natsid/subjects"
)

// A Cluster is a whole natsid, which runs until its test ends: workers that share a nats-server, and create tags on
// first use. Instead of returning an error its methods fail the test. Call them from the test's goroutine.
type Cluster struct {
	// URL is the address of the nats-server, on loopback.
	URL string
	// Conn is a connection to the nats-server, for requests of any kind.
	Conn *nats.Conn
	// Client requests IDs over Conn. It is safe for concurrent use, as Conn is.
	Client *client.Client

	tb  testing.TB
	bed *testbed.Cluster
	ns  subjects.Namespace
	log *slog.Logger
}

// A Config has the settings of [Start]. The zero value means the defaults.
type Config struct {
	// Workers is the number of workers; 0 means 1, and a negative number fails the test.
	Workers int
	// Namespace is the namespace of the workers; "" means [subjects.DefaultNamespace].
	Namespace subjects.Namespace
	// MySQL is the database that keeps the tags, as user:password@tcp(host:port)/database; "" means JetStream.
	MySQL string
	// Clock returns the wall clock of worker i, counted from 0; nil means the machine's. It must be safe for concurrent
	// use.
	Clock func(i int) time.Time
}

// Start starts a cluster until the test ends, and returns once each worker issues IDs of tags and snowflakes.
func Start(tb testing.TB, cfg Config) *Cluster {
	tb.Helper()
	if cfg.Workers < 0 {
		tb.Fatalf("e2e: Workers is %d, want 1 or more, or 0 for 1", cfg.Workers)
	}
	cfg.Namespace = cmp.Or(cfg.Namespace, subjects.DefaultNamespace)
	log := slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	bed, err := testbed.Start(testbed.Config{
		Dir: tb.TempDir(), Workers: cmp.Or(cfg.Workers, 1), Namespace: cfg.Namespace,
		Configure: func(i int, worker *app.Config) {
			worker.Log, worker.MySQL = log.With("worker", i), cfg.MySQL
			if cfg.Clock != nil {
				worker.Now = func() time.Time { return cfg.Clock(i) }
			}
		},
	})
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
	ids, err := client.New(conn, client.Config{Namespace: cfg.Namespace})
	if err != nil {
		tb.Fatalf("e2e: %v", err)
	}
	return &Cluster{URL: bed.URL, Conn: conn, Client: ids, tb: tb, bed: bed, ns: cfg.Namespace, log: log}
}

// Segment returns the handle of a tag.
func (c *Cluster) Segment(tag string) *client.Handle {
	c.tb.Helper()
	h, err := c.Client.Segment(tag, client.SegmentConfig{})
	c.must(err)
	return h
}

// Snowflake returns the handle of snowflakes.
func (c *Cluster) Snowflake() *client.Handle {
	c.tb.Helper()
	h, err := c.Client.Snowflake(client.SnowflakeConfig{})
	c.must(err)
	return h
}

// Number acquires a worker number for the test itself, and gives it back when the test ends.
func (c *Cluster) Number() *number.Holder {
	c.tb.Helper()
	h, err := number.Open(c.tb.Context(), c.Conn, number.Config{Namespace: c.ns, Log: c.log})
	c.must(err)
	c.tb.Cleanup(func() {
		if err := h.Close(); err != nil {
			c.tb.Errorf("e2e: %v", err)
		}
	})
	return h
}

// StartWorker starts worker i, counted from 0, again after [Cluster.StopWorker], on its former data directory. It
// returns once the worker issues IDs.
func (c *Cluster) StartWorker(i int) {
	c.tb.Helper()
	c.must(c.bed.StartWorker(i))
}

// StopWorker stops worker i cleanly: the worker answers the requests that it took, and releases its worker number. If
// the worker does not run, StopWorker does nothing.
func (c *Cluster) StopWorker(i int) {
	c.tb.Helper()
	if err := c.bed.StopWorker(i); err != nil {
		c.tb.Errorf("e2e: %v", err)
	}
}

// WorkerNumber returns the worker number that worker i had after its last start.
func (c *Cluster) WorkerNumber(i int) int { return c.bed.Where(i).Number }
