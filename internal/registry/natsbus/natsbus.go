// Package natsbus carries the messages about registries over NATS; it is internal to natsid and may change.
//
// Announcements go to all workers. A question goes to one worker of each registry (each has a queue group of its
// own), or to one worker of one registry. [Gather] asks all subscribers of any subject.
package natsbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// A Bus is a connection to the workers of a namespace. It is safe for concurrent use, except Join.
type Bus struct {
	nc *nats.Conn
	ns subjects.Namespace

	slots chan struct{} // bounds how many questions are answered at the same time
	// since are subscriptions that receive a message if another worker has come since Call found none; nil if other
	// workers may be there. links counts the reconnects of the connection until they were made.
	since []*nats.Subscription
	links uint64

	registry string               // the registry that this worker answers for; "" before Join
	joined   []*nats.Subscription // the subscriptions on which it answers
}

// New returns a bus on nc. Publishing on nc should fail at once while nc is disconnected.
func New(nc *nats.Conn, ns subjects.Namespace) *Bus {
	return &Bus{nc: nc, ns: ns, slots: make(chan struct{}, 16)}
}

// Call asks whether any other worker is there, on a connection of its own, which dial makes. If NATS says that none
// is, [Bus.Ask] answers questions to all registries with [ErrNobody], and does not send them, until another worker
// comes. Call it once, before the first use.
//
// Law: this worker subscribes before it asks, on a connection without echo. So it does not hear itself, and of two
// workers that call on one server at the same moment, one hears the other. On two servers perhaps neither does; then
// announcements show it within seconds. Only "no responders" means that nobody is there, since a silent subscriber
// may be a worker. A worker that starts later calls, too, and one that reconnects announces its registry: this worker
// keeps subscriptions that receive both.
func (b *Bus) Call(ctx context.Context, dial func(...nats.Option) (*nats.Conn, error)) error {
	nc, err := dial(nats.NoEcho(), nats.PermissionErrOnSubscribe(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	first, err := b.ears(nc)
	if err != nil {
		return err
	}
	err = Gather(ctx, nc, wire.RegistryAsk(b.ns), nil, func(*nats.Msg) (enough bool) { return true })
	if !errors.Is(err, ErrNobody) {
		return err
	}
	b.links = b.nc.Stats().Reconnects
	ears, err := b.ears(b.nc)
	if err = errors.Join(err, b.nc.FlushWithContext(ctx), nc.FlushWithContext(ctx)); err == nil && areSilent(first) {
		b.since = ears
	}
	return err
}

// ears subscribes for the next question about registries and the next announcement; it returns both subscriptions.
func (b *Bus) ears(nc *nats.Conn) (ears []*nats.Subscription, err error) {
	for _, subject := range []string{wire.RegistryAsk(b.ns), wire.RegistryAnnounce(b.ns)} {
		ear, err := nc.SubscribeSync(subject)
		if err == nil {
			err = ear.AutoUnsubscribe(1)
		}
		if err != nil {
			return nil, fmt.Errorf("natsbus: %s: %w", subject, err)
		}
		ears = append(ears, ear)
	}
	return ears, nil
}

// areSilent reports whether the subscriptions are valid and have received nothing. Once it is false for some
// subscriptions, it stays false for them.
func areSilent(ears []*nats.Subscription) bool {
	return !slices.ContainsFunc(ears, func(ear *nats.Subscription) bool {
		_, err := ear.NextMsg(time.Nanosecond)
		return !errors.Is(err, nats.ErrTimeout)
	})
}

// Listen calls hear with each announcement of a registry, from now on.
func (b *Bus) Listen(hear func(notice []byte)) error {
	_, err := b.nc.Subscribe(wire.RegistryAnnounce(b.ns), func(m *nats.Msg) { hear(m.Data) })
	if err != nil {
		return fmt.Errorf("natsbus: %s: %w", wire.RegistryAnnounce(b.ns), err)
	}
	return nil
}

// Join makes this worker answer questions for a registry, and for no other. A repeated Join changes nothing.
func (b *Bus) Join(registry string, answer func(ctx context.Context, question []byte) []byte) error {
	if registry == b.registry {
		return nil
	}
	for _, sub := range b.joined {
		_ = sub.Unsubscribe() // fails only on a connection that is gone, and the subscription with it
	}
	b.joined = nil
	for subject, queue := range map[string]string{
		wire.RegistryAsk(b.ns):          wire.QueueGroup + "-" + registry,
		wire.RegistryOf(b.ns, registry): wire.QueueGroup,
	} {
		sub, err := b.nc.QueueSubscribe(subject, queue, func(m *nats.Msg) { b.respond(m, answer) })
		if err != nil {
			return fmt.Errorf("natsbus: %s: %w", subject, err)
		}
		b.joined = append(b.joined, sub)
	}
	b.registry = registry
	return nil
}

// answerTimeout bounds the time that a worker takes for an answer. No asking worker waits longer.
const answerTimeout = 5 * time.Second

// respond answers a question on a goroutine of its own, since an answer may take requests to JetStream. Questions
// beyond 16 at once are not answered.
func (b *Bus) respond(m *nats.Msg, answer func(ctx context.Context, question []byte) []byte) {
	if m.Reply == "" {
		return
	}
	select {
	case b.slots <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-b.slots }()
		ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
		defer cancel()
		if reply := answer(ctx, m.Data); reply != nil {
			_ = m.Respond(reply) // it fails only on a connection that is gone; the question is repeated
		}
	}()
}

// Announce sends a notice, what this worker says about its registry, to all workers.
func (b *Bus) Announce(notice []byte) error { return b.nc.Publish(wire.RegistryAnnounce(b.ns), notice) }

// Ask asks one worker of a registry, or, if registry is "", one of each registry. It calls hear with each answer
// until hear returns true or ctx ends. It returns [ErrNobody] if NATS says at once that nobody listens. A worker that
// asks all registries also hears its own question, and must ignore it.
func (b *Bus) Ask(
	ctx context.Context, registry string, question []byte, hear func(answer []byte) (enough bool),
) error {
	subject := wire.RegistryOf(b.ns, registry)
	if registry == "" {
		if subject = wire.RegistryAsk(b.ns); b.isAlone(ctx) {
			return ErrNobody
		}
	}
	return Gather(ctx, b.nc, subject, question, func(m *nats.Msg) bool { return hear(m.Data) })
}

// isAlone reports whether Call found no other worker, and no other worker has come since.
func (b *Bus) isAlone(ctx context.Context) bool {
	return b.since != nil && b.nc.FlushWithContext(ctx) == nil && areSilent(b.since) &&
		b.nc.Stats().Reconnects == b.links
}

// ErrNobody is returned if NATS says at once that nobody subscribes to a subject.
var ErrNobody = errors.New("nobody listens on that subject")

// Gather publishes a question, and calls hear with each answer until hear returns true or ctx ends; then it returns
// nil. It returns [ErrNobody] if nobody subscribes to the subject. hear runs on the caller's goroutine.
func Gather(
	ctx context.Context, nc *nats.Conn, subject string, question []byte, hear func(answer *nats.Msg) (enough bool),
) error {
	// A request of nats.go takes one answer only, so this subscribes to an inbox of its own.
	answers, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return fmt.Errorf("%s cannot be asked: %w", subject, err)
	}
	defer func() { _ = answers.Unsubscribe() }() // it fails only on a closed connection
	if err := nc.PublishRequest(subject, answers.Subject, question); err != nil {
		return fmt.Errorf("%s cannot be asked: %w", subject, err)
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return fmt.Errorf("%s: %w", subject, ErrNobody)
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("%s does not answer: %w", subject, err)
		case hear(m):
			return nil
		}
	}
}
