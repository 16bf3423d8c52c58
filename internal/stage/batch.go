package stage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/stamp"
)

// Existing is what becomes of a message that has a header Natsid-Id.
type Existing string

// What can become of one. The zero value stops.
const (
	StopAtID  Existing = "stop"
	KeepID    Existing = "keep"    // whether it is unique is its producer's business
	ReplaceID Existing = "replace" // with one of natsid
)

// MsgIDHeader holds the Nats-Msg-Id that a message had in the source.
const MsgIDHeader = "Natsid-Msg-Id"

// The bounds of a batch: JetStream takes 1,000 messages in one atomic write, and the
// memory that a batch takes is bounded.
const (
	batchMessages = 1000
	batchBytes    = 4 << 20
)

// A batch is messages that are written together.
type batch struct {
	msgs    []*nats.Msg
	to      Position // its last message
	pending uint64   // messages of the source behind it
}

// gather reads messages, gives them IDs, and hands them on in batches, while the one
// before is written. A batch takes what is there, and waits for nothing. It returns why
// it ended.
func (s *Stage) gather(ctx context.Context, from Reader, at Position, to chan<- *batch) error {
	var next *Message // read, but not in a batch yet
	for {
		b := &batch{to: at}
		size := 0
		for len(b.msgs) < batchMessages && (len(b.msgs) == 0 || b.pending > 0) {
			if next == nil {
				m, err := from.Next(ctx)
				if err != nil {
					return err
				}
				if err := s.follows(ctx, b.to.Seq, m); err != nil {
					return err
				}
				next = &m
			}
			if size += len(next.Data); size > batchBytes && len(b.msgs) > 0 {
				break
			}
			b.to.Seq, b.pending = next.Seq, next.Pending
			c, err := s.copyOf(next, b.to)
			if err != nil {
				return err
			}
			b.msgs, next = append(b.msgs, c), nil
		}
		if err := s.stamp(ctx, b.msgs); err != nil {
			return err
		}
		at = b.to
		select {
		case to <- b:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// follows returns why a message cannot follow the one with sequence last: those between
// have left the source unread, unless they were deleted one by one.
func (s *Stage) follows(ctx context.Context, last uint64, m Message) error {
	switch {
	case m.Seq <= last:
		return fmt.Errorf("message %d came after message %d", m.Seq, last)
	case m.Seq == last+1:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	src, err := s.cfg.Source.State(ctx)
	if err != nil {
		return err
	}
	//mutant:gap
	if src.First > last+1 {
		return gap(s.cfg.SourceName, last+1, m.Seq-1)
	}
	return nil
}

// copyOf returns what is published for a message, without its ID. Headers of JetStream
// are not copied: they would halt or change the write.
func (s *Stage) copyOf(m *Message, at Position) (*nats.Msg, error) {
	c := &nats.Msg{Subject: s.cfg.Subject(m.Subject), Data: m.Data, Header: make(nats.Header, len(m.Header)+2)}
	for name, values := range m.Header {
		//mutant:headers
		if len(name) < 5 || !strings.EqualFold(name[:5], "Nats-") {
			c.Header[name] = values
		}
	}
	if c.Subject == "" {
		return nil, stop("message %d of stream %s is on %s, for which there is no subject: see --subject",
			m.Seq, s.cfg.SourceName, m.Subject)
	}
	c.Header.Set(SourceHeader, at.String())
	if id := m.Header.Get(nats.MsgIdHdr); id != "" && s.cfg.KeepMsgID {
		c.Header.Set(MsgIDHeader, id)
	}
	switch _, err := stamp.ID(c); {
	case errors.Is(err, stamp.ErrNone):
	case s.cfg.Existing == ReplaceID:
		delete(c.Header, stamp.Header)
	case err != nil:
		return nil, stop("message %d of stream %s: %v: skip it by deleting it there, or replace such IDs",
			m.Seq, s.cfg.SourceName, err)
	case s.cfg.Existing != KeepID:
		return nil, stop("message %d of stream %s has an ID already, %s: keep or replace such IDs (--existing)",
			m.Seq, s.cfg.SourceName, c.Header.Get(stamp.Header))
	}
	const idBytes = len(stamp.Header) + len(": 9223372036854775807\r\n")
	if size, most := c.Size()+idBytes, s.cfg.Largest(); size > most {
		return nil, stop("message %d of stream %s has %d bytes with its ID, and the target accepts %d: "+
			"raise max_payload, or the stream's largest message", m.Seq, s.cfg.SourceName, size, most)
	}
	return c, nil
}

// stamp gives the messages IDs, however long natsid is away.
func (s *Stage) stamp(ctx context.Context, msgs []*nats.Msg) error {
	err := s.cfg.Stamp(ctx, msgs)
	if errors.Is(err, client.ErrBadRequest) || errors.Is(err, client.ErrUnknownTag) {
		return stop("natsid gives no IDs: %v", err)
	}
	return err
}
