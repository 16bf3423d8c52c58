// Package worker answers requests for IDs over NATS; it is internal to natsid and may change.
//
// It decides nothing about IDs: they come from a [segment.Allocator] and a
// [snowflake.Issuer]. Its endpoints are the tables in endpoints.go.
//
// # Handlers never block
//
// NATS runs one goroutine per subscription, so a handler that waits
// delays every request behind it. A handler takes IDs from memory, or parks the
// request and returns; a load, or one timer per queue, wakes parked requests.
// Only requests about tags, which wait for the store, get a goroutine each, and
// at most 16 of them are under way at once.
//
// # Memberships
//
// A worker serves by one membership at a time, which is one connection: see [membership]. It makes another one when
// the connection is lost; when its server is about to stop (lame duck mode), it makes the other one first, so that no
// request is lost.
//
// # Joining and leaving the queue group
//
// Within a membership each mode is a group of queue subscriptions. They stand unless there is a [Reason] to be out.
// Requests that were delivered before a group left are still answered, with IDs or with 503. With no worker left, NATS
// itself reports to callers at once that there are no responders.
//
// # Proof that callers are served
//
// A mode has no trouble once NATS has said that its user holds the rights that the mode needs (rights.go), and has
// taken the subscriptions. No proof draws an ID.
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

	"github.com/natsid/natsid/internal/fleet/policy"
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

// Config says what a worker serves, and where. All fields but JSPrefix, Rights, Rest,
// Intercept and Log must be set.
type Config struct {
	Namespace subjects.Namespace
	// JSPrefix is where another account's JetStream is imported, "" for nowhere. No answer goes there.
	JSPrefix string
	// Version is shown by `nats micro ls`; a semantic version.
	Version string
	// Dial connects to a NATS server once, with these options and its own. announced are the URLs of servers that one
	// named of its own accord. The worker closes the connection, and nothing else may use it. One that a [Cork] dials
	// does not get many more requests than it can answer in time when it comes back during an overload.
	Dial func(announced []string, opts ...nats.Option) (*nats.Conn, error)
	// Ask is the connection on which stores are written.
	Ask *nats.Conn
	// Rights, if set, asks the server of a connection for which modes its user lacks a right, and why. The error says
	// that the server does not tell. Each connection calls it, from one goroutine.
	Rights func(context.Context, *nats.Conn) (map[Mode]error, error)
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
	// State returns the metadata of the worker in `nats micro`: see
	// [wire.ServicePing]. It must be fast.
	State func() map[string]string
	// Limits admits requests for IDs of tags. SetThrottle changes the rate that holds for each tag; its error says that
	// it may have been changed.
	Limits      *policy.Limits
	SetThrottle func(ctx context.Context, rate int64) error
	// MaxBatch is the most IDs that one request may ask for; at least 1.
	MaxBatch int
	// Deadline is how long a request may wait for its answer.
	Deadline time.Duration
	// Reasons are why the process keeps modes out of their queue groups. The worker looks at each change.
	Reasons *Reasons
	// Rest is how long the worker may go without a look at what it can serve, while all is well and hardly anything is
	// asked; 500 ms if 0. Whoever changes the results of Number and
	// Snowflakes calls [Worker.Wake].
	Rest time.Duration
	// Overloaded is called once for each time in which the worker leaves the
	// queue group of the mode again and again, since more requests arrive than it can
	// answer in time. It must not block.
	Overloaded func(Mode)
	// CannotLoad returns why this worker cannot load, or nil: see package internal/fleet/relay. Whoever changes that
	// calls [Worker.Wake].
	CannotLoad func() error
	// Registry returns the registry that this worker loads from, "" if that is not known.
	Registry func() string
	// Observe is called with every answer, concurrently. It must not block.
	Observe func(Answer)
	// Intercept, if set, is called with each message on the subject of an endpoint, and reports whether the worker is
	// to handle it: a service for tests lets requests wait or fail. It may change the reply subject; it must not block.
	Intercept func(*nats.Msg) bool
	// Log is for operators; nil discards.
	Log *slog.Logger
}

// An Answer is the outcome of one request.
type Answer struct {
	Mode   Mode
	Code   subjects.Code // OK if it was served
	IDs    int
	Parked bool          // memory could not serve it at once
	Took   time.Duration // from when a handler took it up until the answer
}

// fill sets defaults for optional fields that are used without a check.
func (cfg *Config) fill() {
	cfg.Rest = cmp.Or(cfg.Rest, lookAtRest)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Rights == nil {
		cfg.Rights = func(context.Context, *nats.Conn) (map[Mode]error, error) { return nil, nil }
	}
}

// refusal returns err as it crosses the wire. Where a queue is full a caller waits for a part of the deadline, by which
// all requests in the queue are answered.
func (cfg *Config) refusal(err error) *subjects.Error {
	e := wireError(err, cfg.Log)
	if e.Code == subjects.TooMany && e.RetryAfter == 0 {
		e.RetryAfter = cfg.Deadline / 10
	}
	return e
}

// A Worker serves the requests of one process, by one membership after another. It never answers a request twice, and
// stops only once it has answered each that was delivered to it on a connection that was not lost. Its methods are safe
// for concurrent use.
type Worker struct {
	cfg      Config
	stats    *statistics
	identity micro.ServiceIdentity
	served   served

	running sync.WaitGroup // memberships

	now  atomic.Pointer[membership] // the one that serves; nil before the first
	next atomic.Pointer[membership] // the one that is joining in its place; nil if there is none
}

// New returns a worker. It serves nothing until it runs.
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

// Trouble returns why callers of a mode are not served here, or why nothing shows
// that they are; nil while they are.
func (w *Worker) Trouble(mode Mode) error {
	if m := w.current(); m != nil {
		return m.trouble(mode)
	}
	return ErrDisconnected
}

// Outs returns all reasons why the worker is in no queue group of a mode, in the order in which they matter; none while
// it is in one.
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

// Lag returns how late requests of a mode are answered at the moment; 0 if few arrive.
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

// Run serves until ctx ends, then answers the requests that were delivered and closes
// the connection. It may be called once.
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
	// redialEvery is about how long a worker waits between two attempts to connect, half to one and a half of it: of
	// many workers whose server is restarted, some are back at once.
	redialEvery = 250 * time.Millisecond
	// redialQuietly is how long attempts may fail before the log says why: that the connection was lost is in the log
	// already.
	redialQuietly = 10 * time.Second
	// joinWithin bounds the wait for snowflakes, which this worker may not serve at
	// the moment. A server in lame duck mode disconnects no client for the first
	// 10 s by default, 5 s in deploy/nats.conf.
	joinWithin = time.Second
	// spread is how long both servers are served. The new one announces to its
	// cluster that requests may go to it, and nothing says when the others know.
	// They must not learn before that the old one takes no more.
	spread = 300 * time.Millisecond
)

// connect returns a membership on the first connection that can be made, in place of one that is gone or that never
// was, or nil once ctx has ended.
func (w *Worker) connect(ctx context.Context, gone *membership) *membership {
	if gone != nil && time.Since(gone.began) < redialEvery { // the server hangs up
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

// begin connects once, and begins a membership.
func (w *Worker) begin(ctx context.Context, before *membership) (*membership, error) {
	var announced []string
	if before != nil {
		announced = before.link.conn.DiscoveredServers()
	}
	replace := make(chan struct{}, 1)
	conn, err := w.cfg.Dial(announced, nats.NoReconnect(), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2),
		nats.UseOldRequestStyle(),    // no subscription outlasts a request, which a stop would wait for
		nats.SkipSubjectValidation(), // it publishes where a message said, which a server has split at white space
		nats.LameDuckModeHandler(func(*nats.Conn) { signal(replace) }))
	if err != nil {
		return nil, err
	}
	m := w.newMembership(conn, replace, before)
	ctx, m.leave = context.WithCancel(ctx)
	w.running.Go(func() { m.run(ctx) })
	return m, nil
}

// move serves on another connection before it leaves the old one, as at a stop: a
// server that stops disconnects its clients, and messages under way are lost.
// Where no other server can be reached, the old one is served until it is gone.
func (w *Worker) move(ctx context.Context, old *membership) *membership {
	if ctx.Err() != nil {
		return old // which leaves
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

// joins waits until a membership serves, and its server knows. It reports whether the connection stands.
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
