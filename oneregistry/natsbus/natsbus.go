// Package natsbus carries the messages of oneregistry over NATS; it is internal to natsid and may change.
//
// Announcements go to all workers. A question goes to one queue group per registry, so that one worker of each answers,
// however many there are; a call goes to one worker of one registry.
package natsbus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/oneregistry"
	"github.com/natsid/natsid/subjects"
)

// A Listener takes what arrives; it is a [oneregistry.Watch].
type Listener interface {
	Hear(announcement []byte)
	Answer(ctx context.Context, call []byte) []byte
}

// A Bus is a [oneregistry.Bus] on one connection.
type Bus struct {
	nc *nats.Conn
	ns subjects.Namespace

	slots chan struct{} // bounds the calls that are answered at once

	mu       sync.Mutex
	listener Listener
	joined   []*nats.Subscription // for the registry of this worker
}

var _ oneregistry.Bus = (*Bus)(nil)

// New returns a bus on nc, which should fail at once while it is disconnected.
func New(nc *nats.Conn, ns subjects.Namespace) *Bus {
	return &Bus{nc: nc, ns: ns, slots: make(chan struct{}, 16)}
}

// Listen passes what arrives to l, from now on. Calls arrive once [Bus.Join] was called.
func (b *Bus) Listen(l Listener) error {
	b.mu.Lock()
	b.listener = l
	b.mu.Unlock()
	_, err := b.nc.Subscribe(b.ns.RegistryAnnounce(), func(m *nats.Msg) { l.Hear(m.Data) })
	if err != nil {
		return fmt.Errorf("natsbus: %s: %w", b.ns.RegistryAnnounce(), err)
	}
	return nil
}

// Join implements [oneregistry.Bus].
func (b *Bus) Join(registry string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, sub := range b.joined {
		_ = sub.Unsubscribe() // fails only on a connection that is gone, and the subscription with it
	}
	b.joined = nil
	for _, s := range []struct{ subject, queue string }{
		{b.ns.RegistryAsk(), subjects.QueueGroup + "-" + registry},
		{b.ns.RegistryOf(registry), subjects.QueueGroup},
	} {
		sub, err := b.nc.QueueSubscribe(s.subject, s.queue, b.answer)
		if err != nil {
			return fmt.Errorf("natsbus: %s: %w", s.subject, err)
		}
		b.joined = append(b.joined, sub)
	}
	return nil
}

// answerTimeout bounds an answer: as long as a caller waits for the longest of them.
const answerTimeout = 20 * time.Second

// answer answers a question or a call on a goroutine of its own, since it reads the registry. Who asks too much is not
// answered.
func (b *Bus) answer(m *nats.Msg) {
	if m.Reply == "" {
		return
	}
	b.mu.Lock()
	l := b.listener
	b.mu.Unlock()
	select {
	case b.slots <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-b.slots }()
		ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
		defer cancel()
		if reply := l.Answer(ctx, m.Data); reply != nil {
			_ = m.Respond(reply) // it fails only on a connection that is gone; the caller asks again
		}
	}()
}

// Announce implements [oneregistry.Bus].
func (b *Bus) Announce(notice []byte) error { return b.nc.Publish(b.ns.RegistryAnnounce(), notice) }

// Ask implements [oneregistry.Bus].
func (b *Bus) Ask(ctx context.Context, question []byte, answer func([]byte) bool) error {
	inbox := b.nc.NewRespInbox()
	sub, err := b.nc.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("natsbus: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is gone then
	if err := b.nc.PublishRequest(b.ns.RegistryAsk(), inbox, question); err != nil {
		return fmt.Errorf("natsbus: %s: %w", b.ns.RegistryAsk(), err)
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("natsbus: %w", err)
		case !answer(m.Data):
			return nil
		}
	}
}

// Call implements [oneregistry.Bus].
func (b *Bus) Call(ctx context.Context, registry string, call []byte) ([]byte, error) {
	m, err := b.nc.RequestWithContext(ctx, b.ns.RegistryOf(registry), call)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, oneregistry.ErrNoWorker
	}
	if err != nil {
		return nil, fmt.Errorf("natsbus: registry %s does not answer: %w", registry, err)
	}
	return m.Data, nil
}
