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
// # Joining and leaving the queue group
//
// Each mode is a group of queue subscriptions. They stand unless
//
//   - the mode is refused ([Config.Refused]),
//   - this worker stands back for others, or an operator has drained it ([Config.Away]),
//   - requests are answered late, since more arrive than this worker can answer,
//   - or, for snowflakes, requests would fail: shortly before the window ends, when
//     the worker number is lost, and while the clock is not trusted or is behind by
//     the deadline or more.
//
// What was delivered before a group left is still answered, with IDs or with 503.
// With no worker left, NATS itself reports to callers at once that there are no
// responders.
//
// The server must answer a ping before a group leaves, or be heard otherwise;
// without an answer nothing changes. The reason: after a reconnect, the NATS client
// subscribes again to what it was about to drain, and then drops what arrives, so
// callers that are routed to this worker would get no answer. Where a connection is
// lost nevertheless while a group leaves, a [Cork] makes the next one once all is drained;
// if that takes too long, or without a Cork, the worker connects once more.
//
// # Proof that callers are served
//
// A mode has no trouble once NATS has taken its subscriptions, which it refuses, at
// once or later, in errors beside the messages (rights.go); once the worker has heard
// a reply of its own over another connection (echo.go); and while requests or probes
// arrive, if others receive theirs (evidence.go). Where replies are refused no group
// stands. What is not known makes no group leave: callers may be served all the same.
// No proof draws an ID.
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
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/policy"
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

// Config says what a worker serves, and where. All fields but JSPrefix, Origin, Refused, Away,
// Rest, Overloaded, Drain, Ask, State, Gate, Rations, Settings, NeedsStart, Observe and Log must be set.
type Config struct {
	Namespace subjects.Namespace
	// JSPrefix is where another account's JetStream is imported, "" for nowhere. No answer goes there.
	JSPrefix string
	// Version is shown by `nats micro ls`; a semantic version.
	Version string
	// Conn is the connection to serve on. The worker drains and closes it, so
	// nothing else may use it. Dialed by a [Cork], it does not get many more requests
	// than it can answer in time when it comes back during an overload.
	Conn *nats.Conn
	// Ask, if set, is another connection, on which the worker asks itself whether
	// its replies arrive. A mode is ready only if they do.
	Ask *nats.Conn
	// Segments issues the IDs of tags, and Store holds the tags.
	Segments *segment.Allocator
	Store    segment.Store
	// Snowflakes issues the snowflakes of Layout.
	Snowflakes *snowflake.Issuer
	Layout     snowflake.Layout
	// Number returns the worker number, whether one is held, and the JSON value
	// that answers a request for the identity of that number. It must not block.
	Number func() (number int, held bool, who any)
	// Origin, if set, returns the load that an ID of a tag came from, if it is remembered. Only callers that ask for it
	// with [subjects.HeaderExplain] cost a call.
	Origin func(tag string, id int64) (segment.Loaded, bool)
	// Instance returns the worker's name, which identifies it in statistics.
	Instance func() string
	// State, if set, returns what the worker says of itself in `nats micro`: see
	// [subjects.Namespace.SegmentPing]. It must be fast.
	State func() map[string]string
	// Gate, if set, admits requests for IDs of tags, and Settings, if set, changes what it admits.
	Gate     *policy.Gate
	Settings Settings
	// Rations, if set, bound what this process gives, on this connection and others.
	Rations *Rations
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
	// Away, if set, returns why this worker had better leave a mode to others, or
	// nil. The worker then leaves the queue group of the mode, and serves what is
	// delivered all the same. It must be fast.
	Away func(Mode) error
	// Rest is how long the worker may go without a look at what it can serve, while all is well and hardly anything is
	// asked; 500 ms if 0. Whoever changes what Number, Snowflakes, Refused and Away return calls [Worker.Wake].
	Rest time.Duration
	// Overloaded, if set, is called once for each time in which the worker leaves the
	// queue group of the mode again and again, since more requests arrive than it can
	// answer in time. It must not block.
	Overloaded func(Mode)
	// Drain, if set, is called when an operator orders the worker to leave all its queue
	// groups, or with false to join them again. From then on Away must say so. It is
	// called again with each repeated order, reports whether that changed anything, and
	// must not block.
	Drain func(drain bool) (changed bool)
	// Hear, if set, takes what workers tell one another on
	// [subjects.Namespace.RegistryStore]. It must not block.
	Hear func(message []byte)
	// NeedsStart, if set, reports whether a tag that is missing may have been in use, so that who creates it must say
	// where it starts.
	NeedsStart func() bool
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
	Took   time.Duration // from when a handler took it up until the answer
}

// A Worker serves the requests of one process. It never answers a request twice,
// and stops only once it has answered each that was delivered to it.
type Worker struct {
	cfg  Config
	out  *outlet
	ping *pinger

	stats    *statistics
	identity *identity
	rights   *rights
	echo     *echo
	evidence *evidence
	groups   []*group // of all modes
	services []*service
	drains   *drains
	changes  *changes // set by Run

	reconnects uint64               // of the connection, at the last look
	dragged    []*nats.Subscription // what it has drained, and subscribed to again as it came back
	looked     time.Duration
	due        bool          // it is time for marks
	woken      chan struct{} // has room for one word that it is time to look
}

// fill sets what may be absent and is called without looking.
func (cfg *Config) fill() {
	if cfg.Observe == nil {
		cfg.Observe = func(Answer) {}
	}
	if cfg.Rest == 0 {
		cfg.Rest = lookAtRest
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
}

// retryAfter returns what a caller waits where a queue is full: a part of the deadline, by which all that is in the
// queue is answered.
func retryAfter(deadline time.Duration) time.Duration { return deadline / 10 }

// New returns a worker. It serves nothing until it runs.
func New(cfg Config) *Worker {
	cfg.fill()
	w := &Worker{cfg: cfg, ping: newPinger(cfg.Conn), woken: make(chan struct{}, 1)}
	w.out = &outlet{
		conn: cfg.Conn, observe: cfg.Observe, log: cfg.Log, rations: cfg.Rations, retryAfter: retryAfter(cfg.Deadline),
		jsPrefix: cfg.JSPrefix, traces: newTraceLog(),
	}
	w.stats = &statistics{cfg: &w.cfg}
	w.rights = watchRights(cfg.Conn)
	w.echo = newEcho(&w.cfg, w.rights)
	w.identity = &identity{cfg: &w.cfg, ping: w.ping, rights: w.rights}
	segments := w.group(Segment, nil, w.segmentEndpoints())
	tags := w.group(Tags, nil, w.tagEndpoints())
	flakes := w.group(Snowflake, w.cannotIssue, w.snowflakeEndpoints())
	w.groups = []*group{segments, tags, flakes}
	w.evidence = newEvidence(&w.cfg, w.rights, segments, flakes)
	ns := cfg.Namespace
	ranges := newService(&w.cfg, ns.SegmentService(), "IDs of tags, from ranges", segments, tags)
	ranges.always, ranges.data = true, w.stats.of
	clocks := newService(&w.cfg, ns.SnowflakeService(), "IDs from time, worker number and sequence", flakes)
	w.services = []*service{ranges, clocks}
	w.drains = newDrains(&w.cfg, w.out, w.rights, ranges.identity.ID, w.Wake)
	return w
}

func (w *Worker) group(mode Mode, cannot func(up bool) error, endpoints []*endpoint) *group {
	return &group{
		mode: mode, cfg: &w.cfg, ping: w.ping, rights: w.rights, echo: w.echo, cannot: cannot, endpoints: endpoints,
		trouble: errNotBegun,
	}
}

// cannotIssue returns why requests for snowflakes would fail, or nil. No ID is
// issued under a number that looks free: a group joins once the worker answers for
// its number.
func (w *Worker) cannotIssue(up bool) error {
	// Join when the next request need not wait; stay while it need not fail.
	if up {
		if err := w.identity.denied(); err != nil {
			return err
		}
		return w.cfg.Snowflakes.Ready(w.cfg.Deadline, leaveAhead)
	}
	if err := w.cfg.Snowflakes.Ready(0, leaveAhead); err != nil {
		return err
	}
	// The generator in use may be younger than the last look at the number.
	return w.identity.follow()
}

// Trouble returns why callers of a mode are not served here, or why nothing shows
// that they are; nil while they are. It is safe for concurrent use.
func (w *Worker) Trouble(mode Mode) error {
	for _, g := range w.groups {
		if g.mode != mode {
			continue
		}
		why, unheard := g.why(), w.echo.trouble()
		switch {
		case why == nil && unheard == nil:
			return w.evidence.why(mode)
		case why == nil:
			return unheard
		case unheard == nil || errors.Is(why, unheard):
			return why
		}
		return fmt.Errorf("%w; %w", why, unheard)
	}
	return fmt.Errorf("worker: no mode %q", mode)
}

// Lag returns how late requests of a mode are answered at the moment; 0 if few arrive.
// It is safe for concurrent use.
func (w *Worker) Lag(mode Mode) time.Duration {
	for _, g := range w.groups {
		if g.mode == mode {
			return g.late()
		}
	}
	return 0
}

// Run serves until ctx ends, then answers what has been delivered and closes
// the connection. It returns an error if it could not begin to serve. It may be
// called once.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.start(); err != nil {
		w.cfg.Conn.Close()
		return err
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { w.echo.run(ctx, w.cfg.Log) })
	next := time.NewTimer(0)
	defer next.Stop()
	for ctx.Err() == nil {
		select {
		case <-next.C:
			next.Reset(w.look())
			for len(w.ping.back) > 0 { // first, or what they answer looks late
				w.pinged(<-w.ping.back)
			}
		case pong := <-w.ping.back:
			w.pinged(pong)
		case <-w.woken:
			next.Reset(w.look())
		case <-ctx.Done():
			continue
		}
		w.follow()
	}
	w.stop()
	return nil
}

func (w *Worker) start() (err error) {
	w.reconnects = w.cfg.Conn.Stats().Reconnects
	if w.changes, err = listen(&w.cfg); err != nil {
		return err
	}
	return w.drains.listen()
}

// pinged notes how a ping ended.
func (w *Worker) pinged(p pong) {
	arrived, _ := w.requests()
	if w.ping.end(clock(), p, arrived); p.err == nil {
		w.rights.pinged()
		return
	}
	for _, g := range w.groups {
		g.forget()
	}
}

// follow makes the subscriptions follow what can be served.
func (w *Worker) follow() {
	now := clock()
	_ = w.identity.follow() // logged; snowflakes are not served without it
	w.heal()
	w.drains.take()
	troubles := make([]error, len(w.groups))
	for i, g := range w.groups {
		g.measure(now)
		troubles[i] = g.follow(now)
	}
	w.evidence.follow()
	w.pingIfNeeded(now)
	for _, s := range w.services {
		if err := s.follow(); err != nil {
			w.cfg.Log.Error("`nats micro` does not show this worker; trying again", "error", err)
		}
	}
	for i, g := range w.groups { // what serves is shown by then
		g.say(now, troubles[i])
	}
	_, open := w.requests()
	w.drains.answer(w.groups, open)
	w.changes.follow()
}

// pingIfNeeded pings if a group waits for the server, or its lag is measured.
func (w *Worker) pingIfNeeded(now time.Duration) {
	if !w.cfg.Conn.IsConnected() {
		return
	}
	needed, marked := w.ping.owes(w.identity.needs()), []*group{}
	for _, g := range w.groups {
		needed = needed || w.ping.owes(g.needs())
		if w.due && g.needsMark() {
			marked = append(marked, g)
		}
	}
	w.due = false
	arrived, _ := w.requests()
	if (needed || len(marked) > 0) && w.ping.send(now, arrived) {
		for _, g := range marked {
			g.lag.mark(now, w.ping.sent, g.arrived())
		}
	}
}

// heal connects anew where the connection was lost while a subscription was drained.
// The client subscribes to it again on the new connection, and drops what arrives once
// it is drained, so callers that are routed to this worker would get no answer. What lies
// unread in the connection is lost by that, so it is the last resort: see [Cork.Dial].
func (w *Worker) heal() {
	n := w.cfg.Conn.Stats().Reconnects
	reconnected := n != w.reconnects
	if !reconnected && len(w.dragged) == 0 {
		return
	}
	for _, g := range w.groups {
		g.waiting() // forgets those that are gone
	}
	if w.reconnects = n; reconnected {
		w.dragged = w.drags()
		for _, g := range w.groups {
			g.lift()
		}
	}
	if len(w.dragged) > 0 && !slices.ContainsFunc(w.dragged, (*nats.Subscription).IsValid) {
		w.dragged = nil
		w.cfg.Log.Warn("the connection was lost while a queue group was left: connecting anew")
		_ = w.cfg.Conn.ForceReconnect() // it fails only on a connection that is closed
	}
}

// drags returns what the client has subscribed to again on the present connection, though it was drained. A cork knows
// of those that are gone by now, too.
func (w *Worker) drags() (subs []*nats.Subscription) {
	if cork := corkOf(w.cfg.Conn); cork != nil {
		return cork.drags()
	}
	for _, g := range w.groups {
		subs = append(subs, g.left...)
	}
	return subs
}
