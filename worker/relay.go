package worker

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// A worker that cannot load relays: it sends a request that memory cannot serve to a worker that can, by a request of
// its own, and answers with the answer. Workers that can load are in the queue group of id.relay.>, so NATS itself says
// whether there is one. A request that was relayed is not relayed again. A worker that is stopped relays all requests.
// Where too few numbers of a loose tag are left to reserve, others may have some in memory, and are asked for those.
//
// # Laws
//
// Second law: a request that is relayed has left the queue of its tag, and got no ID there. Those of the answer are of
// a load of the other worker, which has them in that answer alone; here one answer is taken, for one request. An answer
// that comes too late is a hole.
//
// Third law: a request was sent before it is relayed, so it was sent before the relay arrived, and the load that serves
// that sends its compare-and-set later. Which worker loads is no part of the law.
//
// Both rest on the marks of one registry: a relay names it, and a worker of another one does not take it. A worker that
// is stopped names none: it issues nothing of its own, and what it passes on goes where NATS would have delivered it
// without this worker. So an answer counts also if the stop comes between: its IDs are of a worker that is sound.

// Headers between workers. A relay has the registry of the sender, "" if that is unknown, and how long the sender waits
// for the answer. A relay that was not taken changed nothing, and is sent again to whomever NATS picks next.
const (
	headerRegistry = "Natsid-Registry"
	headerWithin   = "Natsid-Within-Ms"
	headerNotTaken = "Natsid-Not-Taken"
	headerHeld     = "Natsid-Held" // only what is in memory is asked for
)

const (
	// mostRelays bounds the relays of one connection that wait for an answer.
	mostRelays = 4096
	// relayTries is how often a relay is sent that is not taken: those that NATS picks may just have lost their store,
	// or be this worker itself, until its server knows that it has left.
	relayTries = 4
	// heldTries is the same of a relay for what is in memory, perhaps of one worker of several. It is refused at once.
	heldTries = 16
)

var (
	// ErrNobodyLoads is returned, and sent to callers, if no worker can load.
	ErrNobodyLoads = subjects.Errorf(subjects.Unavailable, "no worker can load IDs at the moment")

	errManyRelays = subjects.Errorf(subjects.TooMany, "too many requests wait for another worker")
	errNoAnswerOf = subjects.Errorf(subjects.Unavailable,
		"another worker did not answer in time, and may have done what was asked")
)

// isRelayed reports whether another worker has sent the request.
func (r *request) isRelayed() bool { return r.at.mode == Relay }

// turnAway refuses a request for n IDs with err, or relays it if the allocator has left it to another worker, or this
// one is stopped.
func (r request) turnAway(m *nats.Msg, n int, err error) {
	switch isStopped := errors.Is(err, errStopped); {
	case r.isRelayed():
		r.refuse(err)
	case isStopped:
		r.relay(m, n, relayTo(""), err)
	case errors.Is(err, segment.ErrElsewhere):
		r.relay(m, n, relayTo(r.at.link.Registry()), ErrNobodyLoads)
	default:
		r.refuse(err)
	}
}

// relayTo returns the header of a relay to workers of a registry, "" for any.
func relayTo(registry string) nats.Header { return nats.Header{headerRegistry: {registry}} }

// relay answers a request with the answer of a worker that takes it with the header, or with nobody if there is none.
// It does not block.
func (r request) relay(m *nats.Msg, n int, header nats.Header, nobody error) {
	l := r.at.link
	if l.relays.Add(1) > mostRelays {
		l.relays.Add(-1)
		r.refuse(errManyRelays)
		return
	}
	go func() {
		defer l.relays.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), l.Deadline-(clock()-r.came))
		defer cancel()
		body, err := l.ask(ctx, m, header)
		switch {
		case errors.Is(err, ErrNobodyLoads):
			if header.Get(headerHeld) != "" {
				l.spent.note(wire.Tag(l.Namespace, m.Subject), n)
			}
			r.refuse(nobody)
		case err != nil:
			r.refuse(err)
		default:
			r.respond(body, n)
		}
	}()
}

// A spent remembers for 0.1 s how many IDs of a tag nobody had in memory, so that requests of a full tag cost the other
// workers little. It is safe for concurrent use.
type spent struct {
	mu   sync.Mutex
	tags map[string]lack
}

// A lack is that nobody has n IDs, until a time.
type lack struct {
	n     int
	until time.Duration
}

// has reports whether nobody had n IDs a moment ago.
func (s *spent) has(tag string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.tags[tag]
	return clock() < l.until && n >= l.n
}

func (s *spent) note(tag string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tags == nil || len(s.tags) > 1000 {
		s.tags = make(map[string]lack)
	}
	if old := s.tags[tag]; old.n <= n && clock() < old.until {
		return // that says more
	}
	s.tags[strings.Clone(tag)] = lack{n, clock() + 100*time.Millisecond}
}

// ask relays a message, and returns the body of the answer.
func (l *link) ask(ctx context.Context, m *nats.Msg, header nats.Header) ([]byte, error) {
	header[subjects.HeaderPrefetch] = m.Header[subjects.HeaderPrefetch]
	tries, pause := relayTries, 10*time.Millisecond
	if header.Get(headerHeld) != "" {
		tries, pause = heldTries, 0
	}
	for try := 1; ; try++ {
		end, _ := ctx.Deadline()
		header.Set(headerWithin, strconv.FormatInt(time.Until(end).Milliseconds(), 10))
		answer, err := l.conn.RequestMsgWithContext(ctx,
			&nats.Msg{Subject: wire.Relay(l.Namespace, m.Subject), Header: header, Data: m.Data})
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return nil, ErrNobodyLoads
		case err != nil: // it may have been taken
			return nil, errNoAnswerOf
		case answer.Header.Get(headerNotTaken) == "":
			if e := subjects.ParseError(answer.Header); e != nil {
				return nil, e
			}
			return answer.Data, nil
		case try == tries || jitter.Sleep(ctx, jitter.Around(pause)) != nil:
			return nil, ErrNobodyLoads
		}
	}
}

// FindRelay returns nil if a worker takes requests of this one, [ErrNobodyLoads] if none does, or another error if that
// is unknown. It uses the connection that requests arrive on: the other one may be lost.
func (w *Worker) FindRelay(ctx context.Context) error {
	m := w.current()
	if m == nil {
		return ErrDisconnected
	}
	_, err := m.link.ask(ctx, &nats.Msg{Subject: m.link.search()}, relayTo(m.link.Registry()))
	return err
}

// search is a subject whose relay has no other purpose than its answer.
func (l *link) search() string { return string(l.Namespace) + ".search" }

// relayEndpoints returns the endpoints of requests that other workers relay, given those of requests of callers.
func (m *membership) relayEndpoints(before served, of ...*endpoint) (all []*endpoint) {
	of = append(of, &endpoint{mode: Relay, name: "search", subject: m.link.search(), handler: func() handler {
		return func(r request, _ *nats.Msg) { r.answerUncounted(nil) }
	}})
	for _, e := range of {
		relay := m.endpoint(Relay, e.name, wire.Relay(m.link.Namespace, e.subject), before, func() handler {
			return m.take(e.mode, e.handler())
		})
		relay.before = before.of("relay of " + e.name)
		all = append(all, relay)
	}
	return all
}

// take returns the handler of requests of a mode that other workers relay, given that of requests of callers.
func (m *membership) take(mode Mode, handle handler) handler {
	l := m.link
	return func(r request, msg *nats.Msg) {
		ms, _ := strconv.ParseInt(msg.Header.Get(headerWithin), 10, 32) // 0 if it is malformed
		registry := msg.Header.Get(headerRegistry)
		if ms <= 0 || registry != "" && registry != l.Registry() || m.cannotTake(mode) {
			r.refuse(segment.ErrElsewhere)
			return
		}
		r.within = min(l.Deadline, time.Duration(ms)*time.Millisecond)
		msg.Subject = wire.Relayed(l.Namespace, msg.Subject)
		handle(r, msg)
	}
}

// cannotTake reports whether requests of a mode are to be relayed to other workers than this one.
func (m *membership) cannotTake(mode Mode) bool {
	if m.link.Reasons.Forbidden(mode) != nil {
		return true
	}
	if mode == Snowflake {
		return m.trouble(mode) != nil
	}
	return m.link.CannotLoad() != nil
}
