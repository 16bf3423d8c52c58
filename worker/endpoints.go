package worker

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// An endpoint is a subject on which each request is answered by one worker of the queue group. Each connection of the
// worker has endpoints of its own.
type endpoint struct {
	mode    Mode
	name    string // in `nats micro`
	subject string
	// handler returns a new handler for one subscription; the handler of the previous subscription may still be
	// running. A handler must not block: it would delay all requests of its subscription.
	handler func() handler

	link    *link
	figures *tally // of this connection and earlier ones

	// Counts of this connection.
	arrived  atomic.Int64
	answered atomic.Int64
	granted  int // how many requests the subscription may receive; 0: any number
}

// listEndpoint is the only endpoint for tags that changes no tag.
const listEndpoint = "tag-list"

// A handler answers a request, or parks it: queues it until there are IDs.
type handler func(request, *nats.Msg)

// yieldEvery is how long a subscription may handle queued requests before it yields the CPU. Where CPU time is short,
// the goroutine that measures how late requests are would otherwise run late itself.
const yieldEvery = 5 * time.Millisecond

// receive returns the callback of a new subscription. It drops a message without a reply subject, and one whose reply
// subject is not allowed (see misled), before they cost an ID.
func (e *endpoint) receive() nats.MsgHandler {
	handle, yielded := e.handler(), clock()
	return func(m *nats.Msg) {
		came := clock()
		e.arrived.Add(1)
		if m.Reply == "" || e.link.misled(m) || e.link.Intercept != nil && !e.link.Intercept(m) {
			e.answered.Add(1)
		} else {
			handle(request{at: e, reply: m.Reply, came: came, within: e.link.Deadline}, m)
		}
		if came-yielded > yieldEvery { // after the answer, so that this request does not wait
			runtime.Gosched()
			yielded = came
		}
	}
}

// open returns how many arrived requests are not answered yet.
func (e *endpoint) open() int64 {
	answered := e.answered.Load() // read first, so that the result is never too small
	return e.arrived.Load() - answered
}

// misled reports whether the reply subject of m is one of natsid's own subjects or a subject of JetStream, so that it
// cannot be a caller's inbox. NATS checks the worker's right to publish there, not the caller's: the answer could
// replace a mark, which keeps IDs unique, or the record of a worker number.
func (l *link) misled(m *nats.Msg) bool {
	js := l.JSPrefix
	if !strings.HasPrefix(m.Reply, l.own) && m.Reply[0] != '$' && !strings.Contains(m.Reply, ".$") &&
		(js == "" || !strings.HasPrefix(m.Reply, js)) {
		return false
	}
	l.Log.Warn("a request is dropped: its reply subject is not the inbox of a caller, and an answer there could "+
		"damage natsid's data; find out who sends it", "subject", m.Subject, "reply", m.Reply)
	return true
}

// A served maps the name of an endpoint to its counters, which continue from one connection to the next.
type served map[string]*tally

func (s served) of(name string) *tally {
	if s[name] == nil {
		s[name] = new(tally)
	}
	return s[name]
}

func (m *membership) segmentEndpoints(s served) []*endpoint {
	return []*endpoint{
		m.endpoint(Segment, wire.SegmentEndpoint, wire.Segments(m.link.Namespace), s,
			func() handler { return (&segmentHandler{cfg: &m.link.Config}).handle }),
	}
}

func (m *membership) tagEndpoints(s served) []*endpoint {
	ns, admin := m.link.Namespace, newTagAdmin(m.link)
	tags := func(name, subject string, serve serve) *endpoint {
		return m.endpoint(Tags, name, subject, s, func() handler { return admin.handler(serve) })
	}
	return []*endpoint{
		tags("tag-create", ns.TagCreate(), admin.create),
		tags("tag-update", ns.TagUpdate(), admin.update),
		tags("tag-delete", ns.TagDelete(), admin.remove),
		tags(listEndpoint, ns.TagList(), admin.list),
		tags("throttle", wire.ThrottleSubject(ns), admin.throttle),
	}
}

func (m *membership) snowflakeEndpoints(s served) []*endpoint {
	// Each endpoint gets a handler of its own: subscriptions run concurrently.
	handler := func() handler { return newSnowflakeHandler(&m.link.Config).handle }
	return []*endpoint{
		m.endpoint(Snowflake, "snowflake", m.link.Namespace.Snowflake(), s, handler),
		m.endpoint(Snowflake, "business", wire.Snowflakes(m.link.Namespace), s, handler),
	}
}

func (m *membership) endpoint(mode Mode, name, subject string, s served, handler func() handler) *endpoint {
	return &endpoint{mode: mode, name: name, subject: subject, handler: handler, link: m.link,
		figures: s.of(name)}
}

// A request is a message to an endpoint. Exactly one call of respond, refuse or answerUncounted answers it.
type request struct {
	at     *endpoint
	reply  string
	came   time.Duration // by clock
	parked bool
	within time.Duration // how long after came the answer must be sent
}

var began = time.Now()

// clock returns the time since the process began. It costs half of [time.Now].
func clock() time.Duration { return time.Since(began) }

// park returns the request, marked as one that memory could not serve at once.
func (r request) park() request {
	r.parked = true
	return r
}

// isRelayed reports whether another worker has sent the request.
func (r *request) isRelayed() bool { return r.at.mode == Relay }

// respond answers with a body that holds n IDs.
func (r *request) respond(body []byte, n int) {
	err := r.at.link.conn.Publish(r.reply, body)
	if errors.Is(err, nats.ErrMaxPayload) {
		e := subjects.Errorf(subjects.BadRequest,
			"the reply would have %d bytes, more than this NATS server accepts", len(body))
		if n > 0 {
			e.MaxBatch = wire.BatchThatFits(int(r.at.link.conn.MaxPayload()))
		}
		r.refuse(e)
		return
	}
	r.at.link.sent(err)
	r.close(wire.OK, n)
}

// refuse answers with the code for err, and without IDs.
func (r *request) refuse(err error) {
	e := r.at.link.refusal(err)
	m := &nats.Msg{Subject: r.reply, Header: e.Headers()}
	if r.isRelayed() && errors.Is(err, segment.ErrElsewhere) {
		m.Header.Set(headerNotTaken, "1")
	}
	r.at.link.sent(r.at.link.conn.PublishMsg(m))
	r.at.figures.errors.Add(1)
	r.at.figures.last.Store(e)
	r.close(e.Code, 0)
}

// answerUncounted answers with a header alone, and does not count the message as a request.
func (r *request) answerUncounted(header nats.Header) {
	r.at.link.sent(r.at.link.conn.PublishMsg(&nats.Msg{Subject: r.reply, Header: header}))
	r.at.answered.Add(1)
}

func (r *request) close(code subjects.Code, ids int) {
	took := clock() - r.came
	r.at.link.Observe(Answer{Mode: r.at.mode, Code: code, IDs: ids, Parked: r.parked, Took: took})
	r.at.figures.took.Add(int64(took))
	r.at.figures.requests.Add(1)
	r.at.answered.Add(1)
}

// sent logs the error with which sending a reply ended, if any.
func (l *link) sent(err error) {
	if err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
		l.Log.Debug("a reply was not sent", "error", err)
	}
}

// A tally counts the requests of one endpoint for `nats micro`. It is safe for concurrent use.
type tally struct {
	requests atomic.Int64 // answered ones
	took     atomic.Int64 // sum of the times until the answers, in ns
	errors   atomic.Int64
	last     atomic.Pointer[subjects.Error] // nil if there was no error
}
