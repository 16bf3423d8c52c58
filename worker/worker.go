// Package worker answers requests for IDs over NATS; it is internal to natsid and may change.
//
// It makes no IDs itself: they come from a [segment.Allocator] and a [issuer.Issuer]. endpoints.go lists its
// endpoints.
//
// # Handlers never block
//
// NATS runs one goroutine per subscription, so a handler that waits delays every request behind it. A handler takes
// IDs from memory, or parks the request (queues it) and returns. A parked request is answered when there are IDs, or
// when its time is up. Only requests about tags wait for the store: each has a goroutine, and at most 16 are under
// way at once.
//
// # Memberships
//
// A membership is the worker's time on one connection: see [membership]. When the connection is lost, the worker
// begins another membership. When the NATS server is about to stop (lame duck mode), the worker begins the next
// membership before it ends the present one, so that no request is lost.
//
// # Joining and leaving the queue group
//
// Within a membership each mode (kind of request) has a group of queue subscriptions, except while there is a
// [Reason] not to serve the mode. Requests that were delivered before a group left are still answered, with IDs or
// with 503. When no worker is in the queue group, NATS itself answers callers at once that there are no responders.
//
// # Proof that callers are served
//
// A mode counts as served ([Worker.Trouble] is nil) once NATS has listed the rights that the mode needs (rights.go),
// and has answered a ping that was sent after the subscriptions (ping.go). The proof costs no ID.
//
// # Stopping
//
// Each step needs the one before:
//
//  1. Leave the queue groups, so that NATS routes no new request to this worker, which still answers for its number.
//  2. Wait until the subscriptions are gone and no request is open. A drain of the connection would not wait for parked
//     requests.
//  3. Drain the connection and wait until it is closed: then the last replies are sent.
//
// Only after that may the caller of [Worker.Run] close the allocator, which issues IDs of tags, and release the
// worker number, over another connection.
package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// A Mode is the kind of a request.
type Mode string

// The modes: the two kinds of IDs, the administration of tags, and requests that other workers relay.
const (
	Segment   Mode = "segment"
	Snowflake Mode = "snowflake"
	Tags      Mode = "tags"
	Relay     Mode = "relay"
)

// Config says what a worker serves, and where. All fields but JSPrefix, Rights, Intercept and Log must be set.
type Config struct {
	Namespace subjects.Namespace
	// JSPrefix is the subject prefix under which another account's JetStream is imported, "" for none. No answer is
	// sent to subjects under it.
	JSPrefix string
	// Version is the semantic version that `nats micro ls` shows.
	Version string
	// Dial connects once to a NATS server, with options of its own and with opts. announced has the URLs that the
	// former server announced. Only the worker uses the connection, and closes it.
	Dial func(announced []string, opts ...nats.Option) (*nats.Conn, error)
	// Ask is the control connection, on which ranges are loaded. The worker only checks whether it is connected.
	Ask *nats.Conn
	// Rights, if set, asks the server for which modes the connection's user lacks a right, and returns the reason for
	// each. An error means that the server gave no answer. Each connection calls it from one goroutine.
	Rights func(context.Context, *nats.Conn) (map[Mode]error, error)
	// Segments issues the IDs of tags, and Store holds the tags.
	Segments *segment.Allocator
	Store    segment.Store
	// Snowflakes issues the snowflakes of Layout.
	Snowflakes *issuer.Issuer
	Layout     snowflake.Layout
	// Number returns the worker number, which is part of each snowflake; whether this process holds it; and the JSON
	// value that answers questions about the number. It must not block.
	Number func() (number int, held bool, who any)
	// Instance returns the worker's name, which identifies it in statistics.
	Instance func() string
	// State returns the metadata of the worker in `nats micro`: see [wire.ServicePing]. It must be fast.
	State func() map[string]string
	// Limits admits requests for IDs of tags. SetThrottle changes the rate for each tag, in IDs per second, 0 for none;
	// after an error the rate may have been changed.
	Limits      *Limits
	SetThrottle func(ctx context.Context, rate int64) error
	// MaxBatch is the most IDs that one request may ask for; at least 1.
	MaxBatch int
	// Deadline is how long a request may wait for its answer.
	Deadline time.Duration
	// Reasons holds why this process serves no requests of a mode, apart from reasons of a connection. Each change
	// wakes the worker.
	Reasons *Reasons
	// Overloaded is called once per overload: when the worker, for 1 s, was out of the mode's queue group or left it
	// repeatedly, because requests arrived faster than it answered them. It must not block.
	Overloaded func(Mode)
	// CannotLoad returns why this worker cannot load ranges of IDs from the store, nil if it can, as [Watch]
	// decides. After a change of its result, call [Worker.Wake].
	CannotLoad func() error
	// Registry returns the ID of the registry that this worker loads from, "" if it is unknown.
	Registry func() string
	// Observe is called with every answer, concurrently. It must not block.
	Observe func(Answer)
	// Intercept, if set, is called with each message to an endpoint, and reports whether the worker handles the
	// message. natsid test-server delays and fails requests by it. It may change the reply subject; it must not block.
	Intercept func(*nats.Msg) bool
	// Log is the log for operators; nil discards it.
	Log *slog.Logger
}

// An Answer is the outcome of one request.
type Answer struct {
	Mode   Mode
	Code   subjects.Code // OK if it was served
	IDs    int
	Parked bool          // memory could not serve the request at once
	Took   time.Duration // from the arrival at the handler until the answer
}

// fill sets the defaults of optional fields.
func (cfg *Config) fill() {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Rights == nil {
		cfg.Rights = func(context.Context, *nats.Conn) (map[Mode]error, error) { return nil, nil }
	}
}

// refusal returns err as callers get it. If a queue is full, the answer asks the caller to retry after a tenth of the
// deadline, since all queued requests are answered within the deadline.
func (cfg *Config) refusal(err error) *subjects.Error {
	e := wireError(err, cfg.Log)
	if e.Code == subjects.TooMany && e.RetryAfter == 0 {
		e.RetryAfter = cfg.Deadline / 10
	}
	return e
}

// A Worker serves requests on one connection after another (see [membership]), and answers no request twice. Run
// returns only once every delivered request is answered, except those of lost connections. Its methods are safe for
// concurrent use.
type Worker struct {
	cfg      Config
	stats    *statistics
	identity micro.ServiceIdentity
	served   served

	running sync.WaitGroup // memberships

	now  atomic.Pointer[membership] // the membership that serves; nil before the first
	next atomic.Pointer[membership] // the membership that is about to replace now; nil if there is none
}

// New returns a worker. It serves nothing until Run is called.
func New(cfg Config) *Worker {
	cfg.fill()
	w := &Worker{cfg: cfg, served: served{}}
	w.stats = &statistics{cfg: &w.cfg}
	w.identity = newIdentity(wire.Service(cfg.Namespace), cfg.Version)
	cfg.Reasons.wakes(w.Wake)
	return w
}

// ErrDisconnected is returned while there is no connection to serve on.
var ErrDisconnected = errors.New("not connected to NATS")

// current returns the membership that serves, nil while there is no connection.
func (w *Worker) current() *membership {
	if m := w.now.Load(); m != nil && m.link.conn.IsConnected() {
		return m
	}
	return nil
}

// Trouble returns why this worker does not serve callers of a mode, or why that is unknown; nil if it serves them.
// Without a connection it is [ErrDisconnected].
func (w *Worker) Trouble(mode Mode) error {
	if m := w.current(); m != nil {
		return m.trouble(mode)
	}
	return ErrDisconnected
}

// Outs returns all reasons why the worker does not serve a mode, in the order in which they are shown; none while the
// worker serves the mode.
func (w *Worker) Outs(mode Mode) []Out {
	m := w.current()
	if m == nil {
		return add(w.cfg.Reasons.Of(mode), Out{Reason: Disconnected, Why: ErrDisconnected})
	}
	if g := m.of(mode); g != nil {
		return slices.Clone(g.report.Load().outs)
	}
	return nil
}

// Lag returns how long requests of a mode wait now before they are handled; 0 if few arrive.
func (w *Worker) Lag(mode Mode) time.Duration {
	if m := w.now.Load(); m != nil {
		if g := m.of(mode); g != nil {
			return g.report.Load().late
		}
	}
	return 0
}

// Wake makes the worker look at once at what it can serve. It does not block.
func (w *Worker) Wake() {
	for _, m := range []*membership{w.now.Load(), w.next.Load()} {
		if m != nil {
			m.wake()
		}
	}
}

// Run serves until ctx ends, then answers the requests that were delivered and closes the connection. It may be
// called once.
func (w *Worker) Run(ctx context.Context) {
	defer w.running.Wait()
	m := w.connect(ctx, nil)
	for m != nil {
		w.now.Store(m)
		select {
		case <-m.done:
			m = w.connect(ctx, m)
		case <-m.replace:
			m = w.move(ctx, m)
		}
	}
}

const (
	// redialEvery is the mean pause between two attempts to connect. Pauses are random, so that some workers reconnect
	// at once after a server restarts.
	redialEvery = 250 * time.Millisecond
	// redialQuietly is how long attempts may fail before the log says why. The log already has the lost connection.
	redialQuietly = 10 * time.Second
	// joinWithin bounds the wait until the new connection serves snowflakes: a worker without a number never does. A
	// server in lame duck mode disconnects no client for the first 10 s by default, 5 s in deploy/nats.conf.
	joinWithin = time.Second
	// spread is how long a worker that moves serves on both connections. The old subscriptions must not end before all
	// servers of the cluster know the new ones, and no server says when that is.
	spread = 300 * time.Millisecond
)

// connect dials until it has a connection, and returns a membership on it; nil once ctx has ended. The parameter gone
// is the membership that lost its connection, nil at the start.
func (w *Worker) connect(ctx context.Context, gone *membership) *membership {
	if gone != nil && time.Since(gone.began) < redialEvery { // the server accepts and hangs up
		_ = jitter.Sleep(ctx, jittered(redialEvery))
	}
	for began := time.Now(); ctx.Err() == nil; {
		m, err := w.begin(ctx, gone)
		if err == nil {
			if gone != nil {
				w.cfg.Log.Info("reconnected to NATS", "connection", m.link.conn.Opts.Name,
					"server", m.link.conn.ConnectedAddr())
			}
			return m
		}
		if time.Since(began) >= redialQuietly {
			w.cfg.Log.Warn("cannot connect to NATS; trying again", "error", err)
		}
		_ = jitter.Sleep(ctx, jitter.Around(redialEvery))
	}
	return nil
}

// begin connects once, and begins a membership on that connection. The parameter before is the membership that it
// replaces, nil for the first.
func (w *Worker) begin(ctx context.Context, before *membership) (*membership, error) {
	var announced []string
	if before != nil {
		announced = before.link.conn.DiscoveredServers()
	}
	replace := make(chan struct{}, 1)
	conn, err := w.cfg.Dial(announced, nats.NoReconnect(), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2),
		nats.UseOldRequestStyle(),    // leaves no subscription after a request, which a stop would wait for
		nats.SkipSubjectValidation(), // reply subjects come from the server, which has parsed them
		nats.LameDuckModeHandler(func(*nats.Conn) { signal(replace) }))
	if err != nil {
		return nil, err
	}
	m := w.newMembership(conn, replace, before)
	ctx, m.leave = context.WithCancel(ctx)
	w.running.Go(func() { m.run(ctx) })
	return m, nil
}

// move serves on another connection before it leaves the old one. The old connection's server is about to stop: it
// would disconnect its clients, and requests under way would be lost. If no other server can be reached, the old
// connection serves until it is closed.
func (w *Worker) move(ctx context.Context, old *membership) *membership {
	if ctx.Err() != nil {
		return old // old leaves, as ctx has ended
	}
	next, err := w.begin(ctx, old)
	if err != nil {
		if ctx.Err() == nil {
			w.cfg.Log.Warn("the NATS server is about to stop, and no other one can be joined; "+
				"staying until it has stopped: requests under way then may be lost", "error", err)
		}
		return old
	}
	w.next.Store(next)
	defer w.next.Store(nil)
	w.cfg.Log.Info("moving to another connection to NATS", "from", old.link.conn.ConnectedAddr(),
		"to", next.link.conn.ConnectedAddr())
	if !next.joins() {
		next.leave()
		<-next.done
		return old
	}
	_ = jitter.Sleep(ctx, spread)
	w.now.Store(next)
	old.leave()
	<-old.done
	return next
}

// joins waits until the membership serves snowflakes on its new connection, at most joinWithin, and then until the NATS
// server has read all subscriptions, at most joinWithin again. It reports whether the server has read them.
func (m *membership) joins() bool {
	for late := time.Now().Add(joinWithin); m.trouble(Snowflake) != nil && time.Now().Before(late); {
		select {
		case <-m.done:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return m.link.conn.FlushTimeout(joinWithin) == nil
}
