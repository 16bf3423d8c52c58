package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// A link is a worker's settings with one of its connections. A connection never reconnects, so each one has its own
// link.
type link struct {
	Config
	conn *nats.Conn
	own  string // prefix of natsid's own subjects

	relays atomic.Int64 // requests that wait for the answer of another worker
	spent  spent
}

// A membership is one connection on which a worker serves, from the first subscription to the last answer:
//
//	joining ---> serving ---> leaving ---> gone
//	   |            |                       ^
//	   +------------+---- lost -------------+
//
// Within a membership each mode joins and leaves its queue group as often as its reasons change: see [group]. A
// membership that leaves answers every request that it received, on the connection on which the request came, and then
// closes the connection. It never joins again. Requests that a membership holds when its connection is lost get no
// answer: their callers time out, or learn from the next server that nobody took the request.
type membership struct {
	link *link
	ping *pinger

	rights  *rights
	holder  *holder
	groups  []*group // one per mode
	service *service
	subs    []*nats.Subscription // to changes of tags, and questions of `nats micro`

	began  time.Time
	looked time.Duration
	isDue  bool          // markEvery has passed, so the lag may be measured: see [mark]
	woken  chan struct{} // a message means: look now; has room for one
	leave  context.CancelFunc
	closed chan nats.Status // the connection is closed
	// replace asks for another connection: the server is about to stop, or may now accept subscriptions that it
	// refused. It has room for one message.
	replace chan struct{}
	done    chan struct{} // closed when the connection is gone
}

// newMembership returns a membership (the worker's time on one connection), which joins once it runs. before is the
// membership that it replaces, nil for none.
func (w *Worker) newMembership(conn *nats.Conn, replace chan struct{}, before *membership) *membership {
	l := &link{Config: w.cfg, conn: conn, own: string(w.cfg.Namespace) + "."}
	m := &membership{
		link: l, ping: newPinger(conn), woken: make(chan struct{}, 1), replace: replace, done: make(chan struct{}),
		closed: conn.StatusChanged(nats.CLOSED), began: time.Now(),
	}
	var known *rights
	if before != nil {
		known = before.rights
	}
	m.rights = newRights(l, known)
	m.holder = &holder{link: l, ping: m.ping}
	segments := m.group(Segment, Disconnected, m.cannotLoad, m.segmentEndpoints(w.served))
	tags := m.group(Tags, Disconnected, m.cannotLoad, m.tagEndpoints(w.served))
	flakes := m.group(Snowflake, Number, m.cannotIssue, m.snowflakeEndpoints(w.served))
	relays := m.group(Relay, Store, func(bool) error { return l.CannotLoad() },
		m.relayEndpoints(w.served, slices.Concat(segments.endpoints, tags.endpoints, flakes.endpoints)...))
	relays.only = segments
	m.groups = []*group{segments, tags, flakes, relays}
	m.service = &service{link: l, identity: w.identity, stats: w.stats}
	for _, g := range m.groups[:3] {
		m.service.endpoints = append(m.service.endpoints, g.endpoints...)
	}
	return m
}

// cannotLoad returns errOther while a group that is out should wait for the control connection, on which ranges are
// loaded: after both connections were lost, this one may be back first. After awaitOther the group joins all the same,
// since the worker may have IDs in memory.
func (m *membership) cannotLoad(up bool) error {
	if up || m.link.Ask.IsConnected() || time.Since(m.began) >= awaitOther {
		return nil
	}
	return errOther
}

const awaitOther = 500 * time.Millisecond

var errOther = errors.New("worker: the connection to NATS on which ranges are loaded is not back yet")

func (m *membership) group(mode Mode, lack Reason, cannot func(up bool) error, endpoints []*endpoint) *group {
	g := &group{
		mode: mode, link: m.link, ping: m.ping, rights: m.rights, lack: lack, cannot: cannot, endpoints: endpoints,
	}
	g.report.Store(&report{trouble: errNotBegun})
	return g
}

// cannotIssue returns why requests for snowflakes would fail, nil if they would not. The group joins only once the
// worker answers questions about its worker number: without an answer, another worker could take the number, as if it
// were free.
func (m *membership) cannotIssue(up bool) error {
	// A group joins if a request would not wait, and stays while a request would not fail.
	if up {
		return m.link.Snowflakes.Ready(m.link.Deadline, leaveAhead)
	}
	if err := m.link.Snowflakes.Ready(0, leaveAhead); err != nil {
		return err
	}
	// The worker number may have changed since the last look at it.
	return m.holder.follow()
}

// trouble returns why callers of a mode are not served on this connection, nil while they are. It is safe for
// concurrent use.
func (m *membership) trouble(mode Mode) error {
	g := m.of(mode)
	if g == nil {
		return fmt.Errorf("worker: no mode %q", mode)
	}
	return g.report.Load().trouble
}

// of returns the group of a mode, nil if there is none.
func (m *membership) of(mode Mode) *group {
	for _, g := range m.groups {
		if g.mode == mode {
			return g
		}
	}
	return nil
}

// wake makes the membership look at once at what it can serve on its connection.
func (m *membership) wake() { signal(m.woken) }

// signal puts a value into a channel that has room for one, unless it is full.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run serves until ctx ends, and then leaves the queue groups; or until the connection is lost.
func (m *membership) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() { m.rights.run(ctx, m.permitted) })
	if m.serve(ctx) == nil {
		m.stop()
	}
	cancel()
	m.link.conn.Close()
	close(m.done)
	m.ping.stop()
	asking.Wait()
}

// permitted is called when the rights of the NATS user may have changed. It wakes the membership, so that its groups
// join or leave. If given is true, a right was granted, and the worker moves to another connection: the present one
// does not repeat refused subscriptions.
func (m *membership) permitted(given bool) {
	if given {
		signal(m.replace)
	}
	m.wake()
}

var errLost = errors.New("worker: the connection to NATS is lost")

// serve serves until ctx ends. It returns an error if the connection is lost before.
func (m *membership) serve(ctx context.Context) error {
	if err := m.listen(); err != nil {
		m.link.Log.Error("cannot serve on a connection to NATS", "error", err)
		return err
	}
	if m.link.conn.IsClosed() {
		return errLost
	}
	next := time.NewTimer(0)
	defer next.Stop()
	for ctx.Err() == nil {
		select {
		case <-next.C:
			next.Reset(m.look())
			for len(m.ping.back) > 0 { // before follow, which would take answered requests for late ones
				m.pinged(<-m.ping.back)
			}
		case pong := <-m.ping.back:
			m.pinged(pong)
		case <-m.woken:
			next.Reset(m.look())
		case <-m.closed:
			return errLost
		case <-ctx.Done():
			continue
		}
		m.follow()
	}
	return nil
}

// listen subscribes to changes of tags, and to questions of `nats micro`.
func (m *membership) listen() error {
	changes, err := m.link.conn.Subscribe(wire.TagChanged(m.link.Namespace), m.tagChanged)
	if err != nil {
		return err
	}
	m.link.Segments.Refresh() // changes may have been announced before
	m.subs, err = m.service.listen()
	m.subs = append(m.subs, changes)
	return err
}

func (m *membership) pinged(p pong) {
	arrived, _ := m.requests()
	m.ping.end(clock(), p, arrived)
}

// follow makes each group join or leave its queue group, as the state of the worker demands, and publish its report.
func (m *membership) follow() {
	now := clock()
	_ = m.holder.follow() // the holder logs the error; until it is gone, snowflakes are not served
	for _, g := range m.groups {
		g.measure(now)
		g.publish(now, g.follow(now))
	}
	m.pingIfNeeded(now)
}

// pingIfNeeded sends a ping to the server, if it is not proved yet that the server knows a subscription, or if the lag
// of a group (how long its requests wait) is due to be measured.
func (m *membership) pingIfNeeded(now time.Duration) {
	needed, marked := m.ping.owes(m.holder.known), []*group{}
	for _, g := range m.groups {
		needed = needed || m.ping.owes(g.known)
		if m.isDue && (g.lag.isBusy || g.overload.on) && len(g.lag.marks) < maxPings {
			marked = append(marked, g)
		}
	}
	m.isDue = false
	arrived, _ := m.requests()
	if (needed || len(marked) > 0) && m.ping.send(now, arrived) {
		for _, g := range marked {
			g.lag.mark(now, m.ping.sent, g.arrived())
		}
	}
}

// requests returns how many requests have arrived, and how many of them are not answered yet.
func (m *membership) requests() (arrived, open int64) {
	for _, g := range m.groups {
		for _, e := range g.endpoints {
			open += e.open()
			arrived += e.arrived.Load()
		}
	}
	return arrived, open
}

// stop leaves the queue groups, waits until every delivered request is answered, and closes the connection: see the
// package comment.
func (m *membership) stop() {
	for _, sub := range m.subs {
		_ = sub.Unsubscribe() // fails only on a connection that is gone
	}
	for _, g := range m.groups {
		g.leave()
	}
	m.settle(m.holder.subscriptions(), m.link.Deadline+2*time.Second)
	closeGently(m.link.conn, m.closed, m.link.Log)
}

// settle waits, for patience at most, until the connection has only the given number of subscriptions and every
// request is answered. A drained subscription is gone when the last request has left the subscription's queue, a
// moment before the handler counts that request. So settle waits until the counters have not changed for two looks.
// It returns at once if the connection is lost.
func (m *membership) settle(subscriptions int, patience time.Duration) {
	const look = 10 * time.Millisecond
	still, before := 0, int64(-1)
	for end := time.Now().Add(patience); still < 2 && time.Now().Before(end); time.Sleep(look) {
		if m.link.conn.IsClosed() {
			return
		}
		arrived, open := m.requests()
		if m.link.conn.NumSubscriptions() > subscriptions || open > 0 || arrived != before {
			still = 0
		} else {
			still++
		}
		before = arrived
	}
}

// drainTimeout bounds the drain of the connection. All requests are answered by then, so only the server can delay it.
const drainTimeout = 2 * time.Second

// closeGently closes a connection once the server has read all that was sent.
func closeGently(conn *nats.Conn, closed <-chan nats.Status, log *slog.Logger) {
	if conn.IsClosed() {
		return
	}
	if err := conn.Drain(); err != nil {
		log.Warn("the connection could not be drained; replies under way may be lost", "error", err)
		return
	}
	select {
	case <-closed:
	case <-time.After(drainTimeout): // the server does not answer
	}
}

// tagChanged looks up the tag that an announcement names. So this worker sees a change by another worker within
// milliseconds. If the announcement is lost, this worker sees the change with the next load or poll.
func (m *membership) tagChanged(msg *nats.Msg) {
	tag := string(msg.Data)
	if err := subjects.CheckTag(tag); err != nil {
		m.link.Log.Debug("a message names no tag", "subject", msg.Subject, "error", err)
		return
	}
	m.link.Segments.Changed(tag)
}

// How often a worker looks at what it can serve.
const (
	lookSeldom = 50 * time.Millisecond // by default
	lookOften  = 5 * time.Millisecond  // while requests may be answered late
)

// look measures how busy each group is, and returns the pause until the next look.
func (m *membership) look() time.Duration {
	now := clock()
	if m.isDue = now-m.looked >= markEvery; m.isDue {
		m.looked = now
	}
	pause := lookSeldom
	for _, g := range m.groups {
		if m.isDue {
			g.lag.look(g.arrived(), g.waiting())
		}
		switch {
		case g.lag.of(now) > markEvery:
			pause = lookOften
		case g.overload.on || g.credit.granted > 0:
			pause = min(pause, markEvery)
		}
	}
	return pause
}
