// Package natsbus carries the messages about registries over NATS; it is internal to natsid and may change.
//
// Announcements go to all workers. A question goes to one queue group per registry, so that one worker of each answers,
// however many there are; or to one worker of one registry.
package natsbus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
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

	mu     sync.Mutex
	answer func(ctx context.Context, question []byte) []byte
	queue  map[string]string             // by the subjects on which this worker answers
	joined map[string]*nats.Subscription // likewise; absent while this worker asks there
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
	for _, sub := range b.joined {
		_ = sub.Unsubscribe() // fails only on a connection that is gone, and the subscription with it
	}
	b.answer, b.joined = answer, make(map[string]*nats.Subscription)
	b.queue = map[string]string{
		b.ns.RegistryAsk():        subjects.QueueGroup + "-" + registry,
		b.ns.RegistryOf(registry): subjects.QueueGroup,
	}
	for subject, queue := range maps.Clone(b.queue) {
		b.queue[b.amongJoined(subject)] = queue
	}
	for subject := range b.queue {
		if err := b.join(subject); err != nil {
			return err
		}
	}
	return nil
}

// join makes this worker answer on a subject, if that is one of its registry. The lock is held.
func (b *Bus) join(subject string) error {
	queue, ours := b.queue[subject]
	if !ours || b.joined[subject] != nil {
		return nil
	}
	sub, err := b.nc.QueueSubscribe(subject, queue, b.respond)
	if err != nil {
		return fmt.Errorf("natsbus: %s: %w", subject, err)
	}
	b.joined[subject] = sub
	return nil
}

// amongJoined returns the subject on which those who have joined ask the same as on another one. It is another subject
// of calls to a registry, so it needs no right of its own.
func (b *Bus) amongJoined(subject string) string {
	return b.ns.RegistryOf("joined" + strings.TrimPrefix(strings.ReplaceAll(subject, ".", "-"), string(b.ns)))
}

// HasJoined reports whether this worker has ever answered for a registry.
func (b *Bus) HasJoined() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queue != nil
}

// leave returns the subject on which to ask. If this worker answers there, it no longer does until the next join.
func (b *Bus) leave(subject string) (toAsk string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ours := b.queue[subject]; !ours {
		return subject
	}
	subject = b.amongJoined(subject)
	if sub := b.joined[subject]; sub != nil {
		_ = sub.Unsubscribe()
		delete(b.joined, subject)
	}
	return subject
}

// answerTimeout bounds an answer: as long as who asks waits for the longest of them.
const answerTimeout = 5 * time.Second

// respond answers a question on a goroutine of its own, since it reads the registry. Who asks too much is not answered.
func (b *Bus) respond(m *nats.Msg) {
	if m.Reply == "" {
		return
	}
	select {
	case b.slots <- struct{}{}:
	default:
		return
	}
	b.mu.Lock()
	answer := b.answer
	b.mu.Unlock()
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
// is enough or ctx ends. It returns [gather.ErrNobody] if NATS says at once that no other worker listens.
//
// A worker that has joined itself asks on a subject of its own kind, whose queue group it leaves meanwhile. Otherwise
// NATS would hand it one of n questions of n workers, or all if the others are on other servers, and a lone worker
// would wait for nobody's answer.
//
// Law: a worker that has not joined knows nothing of the registry, and may rest on an answer, or on silence. So who has
// joined never leaves the groups in which that worker asks.
func (b *Bus) Ask(
	ctx context.Context, registry string, question []byte, hear func(answer []byte) (enough bool),
) error {
	subject := b.ns.RegistryAsk()
	if registry != "" {
		subject = b.ns.RegistryOf(registry)
	}
	subject = b.leave(subject)
	err := gather.All(ctx, b.nc, subject, question, func(m *nats.Msg) bool { return hear(m.Data) })
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(err, b.join(subject))
}
