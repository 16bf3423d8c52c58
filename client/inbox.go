package client

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
)

// A receiver is called with the reply to one request, or with the error ErrClosed.
type receiver func(token uint64, m *nats.Msg, err error)

// An inbox receives the replies of a client on one subscription, which it opens with the first request.
type inbox struct {
	nc *nats.Conn

	mu     sync.Mutex
	sub    *nats.Subscription
	prefix string // of reply subjects, with the final dot
	last   uint64 // the last token that was given
	wait   map[uint64]receiver
	closed bool
}

// expect returns a new reply subject and its token. It calls f once with the reply that arrives there, unless forget
// is called with the token before. f must not block. When the inbox is closed, f gets [ErrClosed].
func (b *inbox) expect(f receiver) (reply string, token uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return "", 0, ErrClosed
	}
	if b.sub == nil {
		if err := b.open(); err != nil {
			return "", 0, err
		}
	}
	b.last++
	b.wait[b.last] = f
	return b.prefix + strconv.FormatUint(b.last, 36), b.last, nil
}

func (b *inbox) open() (err error) {
	b.wait, b.prefix = make(map[uint64]receiver), b.nc.NewInbox()+"."
	if b.sub, err = b.nc.Subscribe(b.prefix+"*", b.receive); err != nil {
		if isClosed(err) {
			return fmt.Errorf("%w: %w", ErrClosed, err)
		}
		return fmt.Errorf("client: subscribe to replies: %w", err)
	}
	return nil
}

// check returns [ErrClosed] if no reply can arrive any more, else nil.
func (b *inbox) check() error {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case b.nc.IsClosed():
		return fmt.Errorf("%w: %w", ErrClosed, nats.ErrConnectionClosed)
	case b.nc.IsDraining():
		return fmt.Errorf("%w: %w", ErrClosed, nats.ErrConnectionDraining)
	}
	return nil
}

// forget drops the receiver of a token: a reply that arrives later is ignored.
func (b *inbox) forget(token uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.wait, token)
}

func (b *inbox) receive(m *nats.Msg) {
	token, err := strconv.ParseUint(m.Subject[len(b.prefix):], 36, 64)
	if err != nil {
		return
	}
	b.mu.Lock()
	f := b.wait[token]
	delete(b.wait, token)
	b.mu.Unlock()
	if f != nil {
		f(token, m, nil)
	}
}

func (b *inbox) close() {
	b.mu.Lock()
	waiting, sub := b.wait, b.sub
	b.closed, b.wait, b.sub = true, nil, nil
	b.mu.Unlock()
	if sub != nil {
		_ = sub.Unsubscribe() // it fails only on a closed connection
	}
	for token, f := range waiting {
		f(token, nil, ErrClosed)
	}
}
