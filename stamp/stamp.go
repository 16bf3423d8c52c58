// Package stamp gives each message of a pipeline an ID, in the header [Header].
//
//	s := stamp.New(order) // a client.Source, such as a *client.Handle
//	id, err := s.Msg(ctx, msg)           // then publish msg
//
// A message that has an ID keeps it, so stamping twice is safe. No other header is touched. Nats-Msg-Id in particular
// must stay as it is when a message is published again: a newly drawn ID would differ each time.
//
// No two messages get the same ID: natsid ensures that, not this package. The ID of a message that is stamped and
// then not published is never used. A message that is delivered again, since its acknowledgement was lost, gets a new
// ID, unless it was stored with one. Where every reader must see the same ID, stamp before the first publish.
package stamp

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

// Header holds the ID of a message, as a decimal.
const Header = "Natsid-Id"

var (
	// ErrNone is returned where a message has no ID: stamp it.
	ErrNone = errors.New("stamp: the message has no ID in its header " + Header)
	// ErrMalformed is returned if the header holds something else than one ID. The publisher of the message wrote that
	// header, and this package does not change it.
	ErrMalformed = errors.New("stamp: the message has something else than one ID in its header " + Header)
)

// ID returns the ID in the headers of a message, 1 to 2^63-1. The error is [ErrNone] or [ErrMalformed].
func ID(h nats.Header) (subjects.ID, error) {
	values := h[Header]
	switch len(values) {
	case 0:
		return 0, ErrNone
	case 1:
		id, err := subjects.ParseID(values[0])
		if err != nil || id == 0 {
			return 0, fmt.Errorf("%w: %.40q", ErrMalformed, values[0])
		}
		return id, nil
	default:
		return 0, fmt.Errorf("%w: %d values", ErrMalformed, len(values))
	}
}

// A Stamper stamps messages with the IDs of one source. It is safe for concurrent use on different messages.
type Stamper struct {
	ids client.Source
}

// New returns a Stamper. With a [client.Handle] that prefetches, stamping a message costs no round trip, and its ID
// may be as old as MaxAge allows.
func New(ids client.Source) *Stamper { return &Stamper{ids} }

// Msg gives a message an ID, unless it has one, and returns the ID. The error is [ErrMalformed], or one of
// [client.Handle.Next]; then the message is unchanged.
func (s *Stamper) Msg(ctx context.Context, m *nats.Msg) (subjects.ID, error) {
	id, err := ID(m.Header)
	if !errors.Is(err, ErrNone) {
		return id, err
	}
	if id, err = s.ids.Next(ctx); err != nil {
		return 0, err
	}
	set(m, id)
	return id, nil
}

func set(m *nats.Msg, id subjects.ID) {
	if m.Header == nil {
		m.Header = make(nats.Header, 1)
	}
	m.Header[Header] = []string{id.String()}
}

// most is the largest request, in IDs: a client waits 2 s for the answer to a larger request before it asks another
// worker.
const most = 10_000

// Msgs gives each message without an ID an ID, in order, with one request for each 10,000. The error is that of
// [Stamper.Msg], or says that the source gave more or fewer IDs than asked for. If a message has a malformed ID no
// message is stamped; after another error some may be stamped, and the next call leaves those unchanged.
func (s *Stamper) Msgs(ctx context.Context, msgs []*nats.Msg) error {
	var bare []*nats.Msg
	for i, m := range msgs {
		switch _, err := ID(m.Header); {
		case errors.Is(err, ErrNone):
			bare = append(bare, m)
		case err != nil:
			return fmt.Errorf("message %d of %d, on %s: %w", i+1, len(msgs), m.Subject, err)
		}
	}
	for len(bare) > 0 {
		part := bare[:min(len(bare), most)]
		runs, err := s.ids.NextN(ctx, len(part))
		if err != nil {
			return err
		}
		if runs.Len() != len(part) {
			return fmt.Errorf("stamp: the source gave %d IDs for %d messages", runs.Len(), len(part))
		}
		i := 0
		for id := range runs.All() {
			set(part[i], id)
			i++
		}
		bare = bare[len(part):]
	}
	return nil
}

// Handler returns a handler that stamps each message and calls next with it. If a message gets no ID within the
// client's timeout, the handler calls failed in place of next: core NATS does not deliver a message again.
func (s *Stamper) Handler(next nats.MsgHandler, failed func(*nats.Msg, error)) nats.MsgHandler {
	return func(m *nats.Msg) {
		if _, err := s.Msg(context.Background(), m); err != nil {
			failed(m, err)
			return
		}
		next(m)
	}
}

// Consumer returns a handler for [jetstream.Consumer.Consume] that stamps each message and calls next with it. If a
// message gets no ID within the client's timeout, the handler calls failed, which decides whether the message is
// delivered again, for example by NakWithDelay.
func (s *Stamper) Consumer(next jetstream.MessageHandler, failed func(jetstream.Msg, error)) jetstream.MessageHandler {
	return func(m jetstream.Msg) {
		own := nats.Msg{Header: m.Headers()}
		if _, err := s.Msg(context.Background(), &own); err != nil {
			failed(m, err)
			return
		}
		next(&stamped{m, own.Header})
	}
}

// A stamped message is the received message with its ID in the headers.
type stamped struct {
	jetstream.Msg
	headers nats.Header
}

func (m *stamped) Headers() nats.Header { return m.headers }
