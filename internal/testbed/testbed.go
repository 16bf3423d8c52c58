// Package testbed runs a whole natsid for tests: a nats-server in this process, workers that share it, and the faults
// that tests order. Package e2e and `natsid test-server` use it.
//
//	callers ----> nats-server ----> hook ----> workers
//
// A [hook] gets each request for IDs before a worker does, and plays faults: it holds requests back, refuses them, or
// drops their replies.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/subjects"
)

// Config is the settings of a [Cluster]. Dir, Workers, Namespace and Configure must be set.
type Config struct {
	Dir       string // directory of all data
	Workers   int    // at least 1
	Namespace subjects.Namespace
	Websocket bool // the server listens for WebSockets, too
	// Configure changes the settings of a worker, counted from 0, before each of its starts.
	Configure func(worker int, cfg *app.Config)
}

// A Cluster has workers that share a nats-server and create tags on first use. It is safe for concurrent use.
type Cluster struct {
	URL string // of the nats-server, on loopback

	cfg    Config
	server *natsembed.Server
	hook   hook
	conn   *nats.Conn // receives orders

	mu      sync.Mutex // held while workers start and stop
	workers []*worker  // a worker is nil before its first start
}

// Start starts a cluster, and returns once each worker issues IDs of both modes.
func Start(cfg Config) (*Cluster, error) {
	srv, err := natsembed.Start(natsembed.Config{
		Listen: "127.0.0.1:0", StoreDir: filepath.Join(cfg.Dir, "nats"), Websocket: cfg.Websocket,
	})
	if err != nil {
		return nil, fmt.Errorf("the nats-server does not start: %w", err)
	}
	c := &Cluster{URL: srv.ClientURL(), cfg: cfg, server: srv, workers: make([]*worker, cfg.Workers),
		hook: hook{ns: cfg.Namespace, fault: new(fault)}}
	if err := c.start(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// WebsocketURL returns the URL for WebSockets, if the server listens for them.
func (c *Cluster) WebsocketURL() string { return c.server.WebsocketURL() }

// start starts the workers, and then takes orders. The first worker makes the buckets while nobody else is connected:
// otherwise it would wait for answers of other workers.
func (c *Cluster) start() (err error) {
	if err := c.begin(0); err != nil {
		return err
	}
	if c.conn, err = nats.Connect(c.URL, nats.Name("natsid test"), nats.Timeout(time.Minute)); err != nil {
		return fmt.Errorf("cannot connect to the nats-server: %w", err)
	}
	return errors.Join(c.listen(), c.each(func(i int) error {
		if i == 0 {
			return nil
		}
		return c.begin(i)
	}))
}

// each calls f for all workers in parallel, and returns their errors. The lock is held.
func (c *Cluster) each(f func(i int) error) error {
	var all sync.WaitGroup
	faults := make([]error, len(c.workers))
	for i := range c.workers {
		all.Go(func() { faults[i] = f(i) })
	}
	all.Wait()
	return errors.Join(faults...)
}

// StartWorker starts worker i on its former data directory, and returns once the worker issues IDs.
func (c *Cluster) StartWorker(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begin(i)
}

// begin starts worker i. The lock is held.
func (c *Cluster) begin(i int) (err error) {
	if c.workers[i].running() {
		return fmt.Errorf("worker %d runs already", i)
	}
	w, err := start(c.config(i))
	if err != nil {
		return fmt.Errorf("worker %d: %w", i, err)
	}
	c.workers[i] = w
	return nil
}

func (c *Cluster) config(i int) app.Config {
	cfg := app.Default()
	cfg.NATS, cfg.Namespace, cfg.Intercept = c.URL, c.cfg.Namespace, c.hook.intercept
	cfg.Data, cfg.HTTP = filepath.Join(c.cfg.Dir, fmt.Sprintf("worker-%d", i)), ""
	cfg.AutoCreateTags = true
	// All workers read one clock, so a worker number without a record need not wait out the skew of another clock.
	cfg.MaxClockSkew = time.Millisecond
	c.cfg.Configure(i, &cfg)
	if w := c.workers[i]; w != nil && w.where.HTTP != "" {
		cfg.HTTP = w.where.HTTP // the same port after a restart
	}
	return cfg
}

// StopWorker stops worker i cleanly: it answers the requests it has taken, and releases its worker number. It does
// nothing if the worker does not run.
func (c *Cluster) StopWorker(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end(i)
}

// end stops worker i. The lock is held.
func (c *Cluster) end(i int) error {
	if err := c.workers[i].stop(); err != nil {
		return fmt.Errorf("worker %d did not stop cleanly: %w", i, err)
	}
	return nil
}

// Where returns where worker i could be reached when it last became ready.
func (c *Cluster) Where(i int) app.Where {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.workers[i].where
}

// Stop stops the workers cleanly, then the server.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.each(c.end)
	if c.conn != nil {
		c.conn.Close()
	}
	c.server.Shutdown()
	c.server.WaitForShutdown()
	return err
}

// startTimeout bounds how long a worker may take until it issues IDs.
const startTimeout = 2 * time.Minute

// A worker is a natsid that runs on a goroutine of its own.
type worker struct {
	cancel context.CancelFunc // nil once the worker was stopped
	done   chan error         // receives the result of app.Run
	where  app.Where          // its addresses when it became ready
}

// start starts a worker, and returns it once it issues IDs. It retries while the data directory is locked: the lock of
// the former run may wait for a slow disk.
func start(cfg app.Config) (w *worker, err error) {
	for until := time.Now().Add(startTimeout); ; time.Sleep(100 * time.Millisecond) {
		if w, err = startOnce(cfg); !errors.Is(err, app.ErrDataInUse) || time.Now().After(until) {
			return w, err
		}
	}
}

func startOnce(cfg app.Config) (*worker, error) {
	ready := make(chan app.Where, 1)
	cfg.Ready = func(where app.Where) { ready <- where }
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{cancel: cancel, done: make(chan error, 1)}
	go func() { w.done <- app.Run(ctx, cfg) }()
	select {
	case w.where = <-ready:
		return w, nil
	case err := <-w.done:
		cancel()
		return nil, fmt.Errorf("it stopped: %w", err)
	case <-time.After(startTimeout):
		return nil, errors.Join(fmt.Errorf("it issues no IDs after %v", startTimeout), w.stop())
	}
}

// running reports whether the worker was started and not stopped. A nil worker was not started.
func (w *worker) running() bool { return w != nil && w.cancel != nil }

// stop stops the worker if it runs, and returns once it has ended.
func (w *worker) stop() error {
	if !w.running() {
		return nil
	}
	w.cancel()
	w.cancel = nil
	return <-w.done
}
