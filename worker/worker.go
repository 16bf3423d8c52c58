// Package worker answers requests for IDs over NATS; it is internal to natsid and may change.
//
// It decides nothing about IDs: they come from a [segment.Allocator] and a
// [snowflake.Issuer]. Its endpoints are the tables in endpoints.go.
//
// # Handlers never block
//
// NATS micro runs one goroutine per subscription, so a handler that waits
// delays every request behind it. A handler takes IDs from memory, or parks the
// request and returns; a load, or one timer per queue, wakes parked requests.
// Only requests about tags, which wait for the store, get a goroutine each, and
// at most 16 of them are under way at once.
//
// # Joining and leaving the queue group
//
// The segment service stands from start to stop, without the endpoints of what
// [Config.Refused] refuses. The snowflake service is put
// up when an ID can be issued at once. It is taken down when requests would
// fail: shortly before the window ends, when the worker number is lost, and
// while the clock is not trusted or is behind by the deadline or more. What was
// delivered by then is still answered, with IDs or with 503. With no worker
// left, NATS itself reports to callers at once that there are no responders.
//
// The server must answer a ping before the service goes up or down; without an
// answer nothing changes until the next check. The reason: after a reconnect, the
// NATS client subscribes again to what it was about to drain, and then drops what
// arrives, so callers that are routed to this worker would get no answer.
//
// # Stopping
//
// Each step rests on the one before:
//
//  1. Leave the queue groups, so that no new request is routed here. The worker
//     still answers for its worker number.
//  2. Wait until the subscriptions are gone and no request is open. Draining a
//     connection does not wait for parked requests; this step does.
//  3. Drain the connection and wait until it is closed: then the last replies
//     are on the wire.
//
// Only after that may the allocator be closed and the worker number released,
// on a connection that is still open.
package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// A Mode is the kind of a request.
type Mode string

// The modes: the two kinds of IDs, and the administration of tags.
const (
	Segment   Mode = "segment"
	Snowflake Mode = "snowflake"
	Tags      Mode = "tags"
)

// Config says what a worker serves, and where. All fields but Refused, Observe
// and Log must be set.
type Config struct {
	Namespace subjects.Namespace
	// Version is shown by `nats micro ls`; a semantic version.
	Version string
	// Conn is the connection to serve on. The worker drains and closes it, so
	// nothing else may use it.
	Conn *nats.Conn
	// Segments issues the IDs of tags, and Store holds the tags.
	Segments *segment.Allocator
	Store    segment.Store
	// Snowflakes issues the snowflakes of Layout.
	Snowflakes *snowflake.Issuer
	Layout     snowflake.Layout
	// Number returns the worker number, whether one is held, and the JSON value
	// that answers a request for the identity of that number. It must not block.
	Number func() (number int, held bool, who any)
	// Instance returns the worker's name, which identifies it in statistics.
	Instance func() string
	// MaxBatch is the most IDs that one request may ask for; at least 1.
	MaxBatch int
	// Deadline is how long a request may wait for its answer.
	Deadline time.Duration
	// Refused, if set, returns why a mode must not be served at the moment, in
	// words for callers, or nil. The worker then leaves the queue group of the
	// mode, and answers what was delivered with 503 and the reason: no ID leaves
	// the process after Refused has returned an error. It is called with each
	// request, so it must be fast, and safe for concurrent use.
	Refused func(Mode) error
	// Raised, if set, is called when all tags have been raised by that many IDs.
	Raised func(ctx context.Context, by int64) error
	// Observe, if set, is called with every answer, concurrently. It must not
	// block.
	Observe func(Answer)
	// Log receives what operators should know; nil discards.
	Log *slog.Logger
}

// An Answer is the outcome of one request.
type Answer struct {
	Mode   Mode
	Code   subjects.Code // OK if it was served
	IDs    int
	Parked bool          // memory could not serve it at once
	Waited time.Duration // how long it was parked; 0 unless Parked
}

// A Worker serves the requests of one process. It never answers a request twice,
// and stops only once it has answered each that was delivered to it.
type Worker struct {
	cfg  Config
	gate *gate

	stats    *statistics
	identity *identity
	flakes   *snowflakes
	standing *standing
	changes  *changes // set by Run
}

// New returns a worker. It serves nothing until it runs.
func New(cfg Config) *Worker {
	if cfg.Observe == nil {
		cfg.Observe = func(Answer) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	w := &Worker{cfg: cfg, gate: &gate{conn: cfg.Conn, observe: cfg.Observe, log: cfg.Log}}
	w.stats = newStatistics(&w.cfg)
	w.identity = &identity{cfg: &w.cfg}
	w.flakes = newSnowflakes(&w.cfg, w.identity, w.snowflakeService)
	w.standing = &standing{cfg: &w.cfg, service: w.segmentService}
	return w
}

// SnowflakeTrouble returns why snowflakes are not served, or nil while they
// are. It is safe for concurrent use.
func (w *Worker) SnowflakeTrouble() error { return w.flakes.why() }

// watchEvery is how often a worker checks whether it can issue snowflakes.
const watchEvery = 50 * time.Millisecond

// Run serves until ctx ends, then answers what has been delivered and closes
// the connection. It returns an error if it could not begin to serve. It may be
// called once.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.start(); err != nil {
		w.cfg.Conn.Close()
		return err
	}
	var side sync.WaitGroup
	defer side.Wait()
	side.Go(func() { w.stats.keep(ctx) })
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		_ = w.identity.follow() // logged; snowflakes are not put up without it
		w.flakes.follow()
		w.standing.follow()
		w.changes.follow()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	w.stop()
	return nil
}

func (w *Worker) start() (err error) {
	if err := w.standing.up(); err != nil {
		return err
	}
	w.changes, err = listen(&w.cfg)
	return err
}

// stop leaves the queue groups, waits until every request that has been
// delivered is answered, and closes the connection: see the package comment.
func (w *Worker) stop() {
	w.changes.stop()
	w.standing.down()
	w.flakes.down()
	w.gate.settle(w.identity.subscriptions(), w.cfg.Deadline+2*time.Second)
	w.drain()
}

// drainTimeout bounds the drain of the connection. All requests are answered by
// then, so only the server can delay it.
const drainTimeout = 2 * time.Second

func (w *Worker) drain() {
	closed := w.cfg.Conn.StatusChanged(nats.CLOSED)
	if err := w.cfg.Conn.Drain(); err != nil {
		w.cfg.Log.Warn("the connection could not be drained; replies under way may be lost", "error", err)
		w.cfg.Conn.Close()
		return
	}
	select {
	case <-closed:
	case <-time.After(drainTimeout): // the server does not answer
		w.cfg.Conn.Close()
	}
}
