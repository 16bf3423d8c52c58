// Package natsbus carries the messages about registries over NATS; it is internal to natsid and may change.
//
// Announcements go to all workers. A question goes to one queue group per registry, so that one worker of each answers,
// however many there are; or to one worker of one registry.
package natsbus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/gather"
	"github.com/natsid/natsid/subjects"
)

// A Bus is a connection to the workers of a namespace. It is safe for concurrent use.
type Bus struct {
	nc *nats.Conn
	ns subjects.Namespace

	slots chan struct{} // bounds the questions that are answered at once

	mu       sync.Mutex
	registry string // of this worker
	answer   func(ctx context.Context, question []byte) []byte
	joined   []*nats.Subscription // for that registry; none if it did not join one, or left it
}

// New returns a bus on nc, which should fail at once while it is disconnected.
func New(nc *nats.Conn, ns subjects.Namespace) *Bus {
	return &Bus{nc: nc, ns: ns, slots: make(chan struct{}, 16)}
}

// Listen passes announcements to hear, from now on.
func (b *Bus) Listen(hear func(notice []byte)) error {
	_, err := b.nc.Subscribe(b.ns.RegistryAnnounce(), func(m *nats.Msg) { hear(m.Data) })
	if err != nil {
		return fmt.Errorf("natsbus: %s: %w", b.ns.RegistryAnnounce(), err)
	}
	return nil
}

// Join makes this worker one that answers for a registry, and for no other.
func (b *Bus) Join(registry string, answer func(ctx context.Context, question []byte) []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unsubscribe()
	b.registry, b.answer = registry, answer
	for _, s := range []struct{ subject, queue string }{
		{b.ns.RegistryAsk(), subjects.QueueGroup + "-" + registry},
		{b.ns.RegistryOf(registry), subjects.QueueGroup},
	} {
		sub, err := b.nc.QueueSubscribe(s.subject, s.queue, func(m *nats.Msg) { b.respond(m, answer) })
		if err != nil {
			return fmt.Errorf("natsbus: %s: %w", s.subject, err)
		}
		b.joined = append(b.joined, sub)
	}
	return nil
}

// leave makes this worker answer for no registry, if it answers for the given one, and returns its answers; else nil.
func (b *Bus) leave(registry string) (answer func(ctx context.Context, question []byte) []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.registry != registry || len(b.joined) == 0 {
		return nil
	}
	b.unsubscribe()
	return b.answer
}

// unsubscribe ends the subscriptions for a registry. The lock is held.
func (b *Bus) unsubscribe() {
	for _, sub := range b.joined {
		_ = sub.Unsubscribe() // fails only on a connection that is gone, and the subscription with it
	}
	b.joined = nil
}

// answerTimeout bounds an answer: as long as who asks waits for the longest of them.
const answerTimeout = 5 * time.Second

// respond answers a question on a goroutine of its own, since it reads the registry. Who asks too much is not answered.
func (b *Bus) respond(m *nats.Msg, answer func(context.Context, []byte) []byte) {
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
			_ = m.Respond(reply) // it fails only on a connection that is gone; who asks does so again
		}
	}()
}

// Announce sends a notice to all workers.
func (b *Bus) Announce(notice []byte) error { return b.nc.Publish(b.ns.RegistryAnnounce(), notice) }

// Ask asks one worker of a registry, or with "" one of each, and calls hear with each answer until that reports that it
// is enough or ctx ends. It returns [gather.ErrNobody] if NATS says at once that nobody listens.
//
// A worker that asks its own registry leaves the queue group meanwhile: NATS would hand one of n questions of n workers
// to whoever asks, who knows the answer.
func (b *Bus) Ask(
	ctx context.Context, registry string, question []byte, hear func(answer []byte) (enough bool),
) error {
	subject := b.ns.RegistryAsk()
	if registry != "" {
		subject = b.ns.RegistryOf(registry)
		if answer := b.leave(registry); answer != nil {
			err := b.ask(ctx, subject, question, hear)
			return errors.Join(err, b.Join(registry, answer))
		}
	}
	return b.ask(ctx, subject, question, hear)
}

func (b *Bus) ask(
	ctx context.Context, subject string, question []byte, hear func(answer []byte) (enough bool),
) error {
	return gather.All(ctx, b.nc, subject, question, func(m *nats.Msg) bool { return hear(m.Data) })
}
