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

// A worker that cannot load ranges of IDs relays requests that it cannot serve from memory: it sends each to a worker
// that can load, as a request of its own, and passes the answer to the caller. Workers that can load are in the queue
// group of id.relay.>, so NATS itself says whether there is such a worker. A relayed request is not relayed again. A
// worker that is [Stopped] relays all requests. When too few IDs of a tag are left to reserve, and the tag is not
// strict, the worker asks other workers for IDs that they have in memory.
//
// # Laws
//
// Second law (an ID is issued once): a relayed request has left the queue of its tag, and got no ID there. The IDs of
// the answer come from the other worker, which issues them in that answer alone. The relaying worker passes one
// answer to one caller. The IDs of an answer that comes too late are never used.
//
// Third law (later requests for a strict tag get higher IDs): a request is sent before its relay arrives, and the
// load that serves the relay sends its compare-and-set after that. So it does not matter which worker loads.
//
// Both laws hold within one registry, so a relay names its registry, and a worker of another registry does not take
// the relay. A stopped worker names no registry: it issues no IDs itself, and its relay reaches a worker to which
// NATS could have delivered the request in the first place. For the same reason a worker that is stopped while it
// waits for an answer passes the answer on: the IDs come from a worker that is not stopped.

// Headers between workers.
const (
	headerRegistry = "Natsid-Registry"  // of a relay: the registry of its sender; "" for any
	headerWithin   = "Natsid-Within-Ms" // of a relay: how long its sender waits for the answer
	headerHeld     = "Natsid-Held"      // of a relay: asks only for IDs in memory
	// headerNotTaken is of an answer: the worker has refused the relay and changed nothing, so the sender sends the
	// relay again, to a worker that NATS picks.
	headerNotTaken = "Natsid-Not-Taken"
)

const (
	// mostRelays bounds the relays of one connection that wait for an answer.
	mostRelays = 4096
	// relayTries is how often a relay is sent until a worker takes it. NATS may pick a worker that has just lost its
	// store, or the sender itself until the server knows that the sender has left.
	relayTries = 4
	// heldTries is the same for a relay that asks only for IDs in memory: perhaps one of many workers has some, and
	// the others refuse at once.
	heldTries = 16
)

var (
	// ErrNobodyLoads is returned by [Worker.FindRelay], and sent to callers, if no worker can load.
	ErrNobodyLoads = subjects.Errorf(subjects.Unavailable, "no worker can load IDs at the moment")

	errManyRelays = subjects.Errorf(subjects.TooMany, "too many requests wait for another worker")
	errNoAnswerOf = subjects.Errorf(subjects.Unavailable,
		"another worker did not answer in time, and may have done what was asked")
)

// turnAway relays a request for n IDs if err says that another worker may serve it, or that this worker is stopped. For
// another err, or a request that was relayed already, it refuses the request with err.
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

// relay sends a request to other workers with the header, and passes their answer to the caller. If no worker takes
// the request, the caller gets the error in nobody. relay does not block.
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

// spent remembers for 0.1 s that no worker had n IDs of a tag in memory, so that requests for an exhausted tag cost
// other workers little. It is safe for concurrent use.
type spent struct {
	mu   sync.Mutex
	tags map[string]lack
}

// A lack says that no worker has n IDs of a tag in memory, until a time.
type lack struct {
	n     int
	until time.Duration
}

// has reports whether no worker had n IDs of the tag in the last 0.1 s.
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
		return // the old lack covers n too
	}
	s.tags[strings.Clone(tag)] = lack{n, clock() + 100*time.Millisecond}
}

// ask relays a message, and returns the body of the answer; [ErrNobodyLoads] if no worker takes it.
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
		case err != nil: // a worker may have taken it
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

// FindRelay returns nil if another worker takes relays of this one, [ErrNobodyLoads] if none does, or another error if
// that is unknown. It asks on the serving connection, since the control connection may be lost.
func (w *Worker) FindRelay(ctx context.Context) error {
	m := w.current()
	if m == nil {
		return ErrDisconnected
	}
	_, err := m.link.ask(ctx, &nats.Msg{Subject: m.link.search()}, relayTo(m.link.Registry()))
	return err
}

// search returns the subject on which [Worker.FindRelay] asks. An answer proves that some worker takes relays.
func (l *link) search() string { return string(l.Namespace) + ".search" }

// relayEndpoints returns the endpoints of relayed requests: one for each endpoint of callers, and one for FindRelay.
func (m *membership) relayEndpoints(s served, of ...*endpoint) (all []*endpoint) {
	of = append(of, &endpoint{mode: Relay, name: "search", subject: m.link.search(), handler: func() handler {
		return func(r request, _ *nats.Msg) { r.answerUncounted(nil) }
	}})
	for _, e := range of {
		relay := m.endpoint(Relay, e.name, wire.Relay(m.link.Namespace, e.subject), s, func() handler {
			return m.take(e.mode, e.handler())
		})
		relay.figures = s.of("relay of " + e.name)
		all = append(all, relay)
	}
	return all
}

// take returns a handler of relayed requests, which checks that this worker can take them and then calls handle.
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

// cannotTake reports whether this worker can serve no relayed requests of a mode.
func (m *membership) cannotTake(mode Mode) bool {
	if m.link.Reasons.Forbidden(mode) != nil {
		return true
	}
	if mode == Snowflake {
		return m.trouble(mode) != nil
	}
	return m.link.CannotLoad() != nil
}
