package worker

import (
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/natsid/natsid/internal/wire"
)

// An endpoint is a subject on which one worker of the queue group answers each
// request. It stands for as long as the worker does; its group subscribes to it.
type endpoint struct {
	mode    Mode
	name    string // in `nats micro`
	subject string
	// handler returns a new handler, for one subscription: the handler of the former subscription may
	// still be at work. A handler must not block: it delays all requests of its
	// subscription.
	handler func() handler

	link    *link
	wake    func() // the worker
	counts  tally
	before  *tally // of the connections before this one
	granted int    // credit of the subscription; 0: any number of requests
}

// listEndpoint is the endpoint about tags that changes none.
const listEndpoint = "tag-list"

// A handler answers a request, or parks it.
type handler func(request, *nats.Msg)

// yieldEvery is how long a subscription with a queue may keep others from their turn:
// where CPU time is short, that of the goroutine that sees the queue would come late.
const yieldEvery = 5 * time.Millisecond

// receive returns the function that a new subscription calls with each message. A message
// without a reply subject is dropped before it costs an ID, and so is one whose
// answer its caller may not publish: see misled.
func (e *endpoint) receive() nats.MsgHandler {
	handle, yielded := e.handler(), clock()
	return func(m *nats.Msg) {
		came := clock()
		if e.counts.arrived.Add(1) == e.counts.wakesAt.Load() {
			e.wake()
		}
		if m.Reply == "" || e.link.misled(m) || e.link.Intercept != nil && !e.link.Intercept(m) {
			e.counts.none.Add(1)
			e.counts.answered.Add(1)
		} else {
			handle(request{at: e, reply: m.Reply, came: came, within: e.link.Deadline}, m)
		}
		if came-yielded > yieldEvery { // now that it is answered, and came served
			runtime.Gosched()
			yielded = came
		}
	}
}

// wakeIf makes the endpoint wake the worker once it is busy, or never.
func (e *endpoint) wakeIf(rests bool) {
	at := int64(0)
	if rests {
		at = e.counts.arrived.Load() + busy
	}
	e.counts.wakesAt.Store(at)
}

// misled reports whether the answer would use a right that only workers have: answers are
// published with the worker's rights, and NATS does not ask whether the caller may
// publish to the reply subject that he chose. One of natsid's own subjects, or of a
// bucket, is nobody's inbox. An answer there would replace a mark, which keeps IDs
// unique, or a record of a worker number.
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

// The endpoints are those of four groups and one service. Beside them a membership subscribes, in no queue group, to
// changes of tags, questions of `nats micro`, and questions about the worker number while it holds one.

// A served has the counts of connections that are gone, by the name of the endpoint.
type served map[string]*tally

func (s served) of(name string) *tally {
	if s[name] == nil {
		s[name] = new(tally)
	}
	return s[name]
}

func (m *membership) segmentEndpoints(before served) []*endpoint {
	return []*endpoint{
		m.endpoint(Segment, wire.SegmentEndpoint, wire.Segments(m.link.Namespace), before,
			func() handler { return newSegmentHandler(&m.link.Config).handle }),
	}
}

func (m *membership) tagEndpoints(before served) []*endpoint {
	ns, admin := m.link.Namespace, newTagAdmin(m.link)
	tags := func(name, subject string, serve serve) *endpoint {
		return m.endpoint(Tags, name, subject, before, func() handler { return admin.handler(serve) })
	}
	return []*endpoint{
		tags("tag-create", ns.TagCreate(), admin.create),
		tags("tag-update", ns.TagUpdate(), admin.update),
		tags("tag-delete", ns.TagDelete(), admin.remove),
		tags(listEndpoint, ns.TagList(), admin.list),
		tags("throttle", wire.ThrottleSubject(ns), admin.throttle),
	}
}

func (m *membership) snowflakeEndpoints(before served) []*endpoint {
	// One handler each: subscriptions run concurrently.
	handler := func() handler { return newSnowflakeHandler(&m.link.Config).handle }
	return []*endpoint{
		m.endpoint(Snowflake, "snowflake", m.link.Namespace.Snowflake(), before, handler),
		m.endpoint(Snowflake, "business", wire.Snowflakes(m.link.Namespace), before, handler),
	}
}

func (m *membership) endpoint(
	mode Mode, name, subject string, before served, handler func() handler,
) *endpoint {
	return &endpoint{mode: mode, name: name, subject: subject, handler: handler, link: m.link, wake: m.wake,
		before: before.of(name)}
}
