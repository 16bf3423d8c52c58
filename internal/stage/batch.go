package stage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/stamp"
)

// Existing is the treatment of a message that has a header Natsid-Id.
type Existing string

// Treatments of a message that already has an ID. The zero value counts as [StopAtID].
const (
	StopAtID Existing = "stop"
	KeepID   Existing = "keep"        // the message's producer must make sure that the ID is unique
	BuryID   Existing = "dead-letter" // the message becomes a dead letter
)

// The bounds of a batch: JetStream takes 1,000 messages in one atomic write, and the memory for a batch is bounded.
const (
	batchMessages = 1000
	batchBytes    = 4 << 20
)

// lookAhead is how often a source that delivers nothing is checked.
const lookAhead = time.Second

// A reader that delivers nothing for patience, though the source holds more, is replaced, since its request to
// JetStream may be lost. The time doubles with each further silent reader, up to mostPatience, since the source may be
// slow.
const (
	patience     = time.Second
	mostPatience = 8 * time.Second
)

// A batch holds the messages of one atomic write.
type batch struct {
	msgs    []*nats.Msg
	to      Position // last message of the source that the batch copies or passes
	pending uint64   // number of messages of the source after to
	read    int      // number of messages that were read for the batch
	size    int      // bytes of those messages
}

// gather reads messages, gives them IDs, and sends them in batches to the method copy, which writes each batch while
// gather fills the next one. A batch holds the messages at hand, and does not wait for more. The error says why gather
// ended.
func (s *Stage) gather(ctx context.Context, from Reader, begin place, to chan<- *batch) error {
	at, last := begin.from, begin.last
	var next *Message  // read, but not in a batch yet
	var held time.Time // since when the source is known to hold more messages; zero if that is not known
	if begin.end > at.Seq {
		held = time.Now()
	}
	for {
		var broken error // why gathering ends with this batch
		b := &batch{to: at}
		soon, cancel := context.WithTimeoutCause(ctx, lookAhead, errQuiet)
		for b.read < batchMessages && (b.read == 0 || b.pending > 0) {
			if next == nil {
				m, err := from.Next(soon)
				if err == nil {
					held, s.silences = time.Time{}, 0
					err = s.origin.follows(ctx, b.to, m)
				}
				if broken = err; err != nil {
					break
				}
				next = &m
			}
			if b.size += len(next.Data); b.size > batchBytes && b.read > 0 {
				break
			}
			if broken = s.add(ctx, b, next); broken != nil {
				break
			}
			b.to.Seq, b.to.Time, b.pending = next.Seq, next.Time, next.Pending
			b.read++
			next = nil
		}
		cancel()
		quiet := errors.Is(broken, errQuiet)
		switch {
		case quiet && b.read > 0:
			broken = nil // the batch is copied as it is
		case quiet:
			if err := s.quiet(ctx, &b.to, &held); err != nil {
				return err
			}
			if broken = nil; b.to == at {
				continue
			}
		case b.read == 0:
			return broken
		}
		if err := s.stamp(ctx, b); err != nil {
			return err
		}
		if len(b.msgs) > 0 {
			if err := s.cfg.Target.Prepare(b.msgs, last); err != nil {
				return err
			}
		}
		at, last = b.to, last+uint64(len(b.msgs))
		select {
		case to <- b:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if broken != nil {
			return broken
		}
	}
}

// errQuiet means that the source delivered nothing for lookAhead.
var errQuiet = errors.New("stage: no message")

// quiet is called when a source delivers nothing. It moves the position past messages that no filter selects. It
// returns an error if the source holds more to be read, and has delivered nothing for longer than patience.
func (s *Stage) quiet(ctx context.Context, at *Position, held *time.Time) error {
	more, err := s.origin.look(ctx, at)
	switch {
	case err != nil:
		return err
	case !more:
		*held = time.Time{}
	case held.IsZero():
		*held = time.Now()
	case time.Since(*held) >= min(patience<<s.silences, mostPatience):
		s.silences = min(s.silences+1, 10)
		return fmt.Errorf("stream %s holds more than message %d, and JetStream has delivered nothing for %v",
			s.cfg.SourceName, at.Seq, time.Since(*held).Round(100*time.Millisecond))
	}
	return nil
}

// add adds the copy of a message to a batch, or keeps a dead letter if the message cannot be copied.
func (s *Stage) add(ctx context.Context, b *batch, m *Message) error {
	at := b.to.of(m)
	c, why := s.copyOf(m, at)
	if why != nil {
		return s.bury(ctx, m, at, why)
	}
	b.msgs = append(b.msgs, c)
	return nil
}

// idBytes is the most bytes that an ID adds to a message.
const idBytes = len(stamp.Header) + len(": 9223372036854775807\r\n")

// copyOf returns the copy of a message, not stamped yet, or the reason why it cannot be copied. Headers for JetStream
// are left out, since they could change the write or make it fail.
func (s *Stage) copyOf(m *Message, at Position) (*nats.Msg, *unfit) {
	c := &nats.Msg{Subject: s.cfg.Subject(m.Subject), Data: m.Data, Header: own(m.Header, 2)}
	if c.Subject == "" {
		return c, &unfit{NoSubject, "its subject, " + m.Subject + ", is none of --subject"}
	}
	c.Header.Set(SourceHeader, at.String())
	switch _, err := stamp.ID(c.Header); {
	case errors.Is(err, stamp.ErrNone):
	case err != nil:
		return c, &unfit{MalformedID, err.Error()}
	case s.cfg.Existing != KeepID:
		return c, &unfit{HasID, "it has an ID already, " + c.Header.Get(stamp.Header)}
	}
	if err := s.cfg.Fits(c); err != nil {
		return c, &unfit{TooLarge, err.Error()}
	}
	return c, nil
}

// own returns a copy of the headers without those that begin with Nats-. It has room for as many further headers as
// more says.
func own(h nats.Header, more int) nats.Header {
	c := make(nats.Header, len(h)+more)
	for name, values := range h {
		//mutant:headers
		if len(name) < 5 || !strings.EqualFold(name[:5], "Nats-") {
			c[name] = values
		}
	}
	return c
}

// Draw returns an error if natsid gives no IDs. The ID that it draws is never used.
func (s *Stage) Draw(ctx context.Context) error {
	return s.stamp(ctx, &batch{msgs: []*nats.Msg{{Header: nats.Header{}}}})
}

// stamp gives the messages of a batch IDs. It returns a [Stop] if natsid refuses the tag.
func (s *Stage) stamp(ctx context.Context, b *batch) error {
	err := s.cfg.Stamp(ctx, b.msgs)
	if errors.Is(err, client.ErrBadRequest) || errors.Is(err, client.ErrUnknownTag) {
		return stop("natsid gives no IDs: %v: check the tag's name, or create it with `natsid tag create`", err)
	}
	return err
}
