package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// DeadLetters keeps messages that cannot be copied.
type DeadLetters interface {
	// Check returns a [Stop] if no dead letters can be kept; after any other error it is unknown.
	Check(ctx context.Context) error
	// Keep returns once the letter is kept. If it is called twice for a letter, the letter may be stored twice.
	Keep(ctx context.Context, letter *nats.Msg) error
	Largest() int // most bytes of a letter
}

// The headers of a dead letter, besides [SourceHeader] and the headers of the message.
const (
	ReasonHeader  = "Natsid-Reason"  // a [Reason]
	DetailHeader  = "Natsid-Detail"  // the reason as a sentence for people
	SubjectHeader = "Natsid-Subject" // subject of the message in the source
	// BytesHeader is the size of the body of a message that is too large even for a dead letter: then the letter has
	// neither the body nor the headers of the message.
	BytesHeader = "Natsid-Bytes"
)

// A Reason is why a message cannot be copied.
type Reason string

// The reasons.
const (
	TooLarge    Reason = "too-large"    // with its ID it exceeds a limit of the target
	HasID       Reason = "has-id"       // it already has an ID
	MalformedID Reason = "malformed-id" // its header Natsid-Id holds something else than one ID
	NoSubject   Reason = "no-subject"   // [Config].Subject returns none for its subject
)

// An unfit is the reason why a message cannot be copied.
type unfit struct {
	reason Reason
	detail string
}

// bury keeps a dead letter for a message that cannot be copied. It returns a [Stop] if the settings do not allow a dead
// letter for that reason. The message may be passed (left uncopied) only after bury has returned nil.
func (s *Stage) bury(ctx context.Context, m *Message, at Position, why *unfit) error {
	aboutID := why.reason == HasID || why.reason == MalformedID
	if s.cfg.DeadLetters == nil || aboutID && (s.cfg.Existing == StopAtID || s.cfg.Existing == "") {
		remedy := "remove the cause, or make dead letters of such messages (--dead-letter)"
		if aboutID {
			remedy = "choose the treatment of such messages (--existing)"
		}
		return stop("message %d of stream %s cannot be copied (%s): %s: %s",
			m.Seq, s.cfg.SourceName, why.reason, why.detail, remedy)
	}
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	//mutant:keep
	if err := s.cfg.DeadLetters.Keep(ctx, letterFor(m, at, why, s.cfg.DeadLetters.Largest())); err != nil {
		return err
	}
	s.note(func(p *Progress) { p.DeadLetters++ })
	return nil
}

// letterFor returns the dead letter of a message. Its Nats-Msg-Id is its position, so a letter that is kept twice
// within the stream's window of duplicates is stored once.
func letterFor(m *Message, at Position, why *unfit, most int) *nats.Msg {
	letter := &nats.Msg{Header: own(m.Header, 5), Data: m.Data}
	describe := func() {
		letter.Header.Set(SourceHeader, at.String())
		letter.Header.Set(ReasonHeader, string(why.reason))
		letter.Header.Set(DetailHeader, fmt.Sprintf("%.200s", why.detail))
		letter.Header.Set(SubjectHeader, m.Subject)
		letter.Header.Set(nats.MsgIdHdr, at.String())
	}
	if describe(); letter.Size() > most || headerBytes(letter) > mostHeaders {
		letter.Header, letter.Data = make(nats.Header), nil
		letter.Header.Set(BytesHeader, strconv.Itoa(len(m.Data)))
		describe()
	}
	return letter
}

// onLetters is [DeadLetters] in JetStream.
type onLetters struct {
	js      jetstream.JetStream
	subject string
	streams []string // streams that must not store dead letters
}

// DeadLettersOn publishes dead letters on a subject. The stream of that subject must not be one of the streams others.
func DeadLettersOn(js jetstream.JetStream, subject string, others ...string) DeadLetters {
	return &onLetters{js, subject, others}
}

// Check implements [DeadLetters].
func (l *onLetters) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	name, err := l.js.StreamNameBySubject(ctx, l.subject)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return stop("no stream takes %s: make one for dead letters, or give another subject (--dead-letter)", l.subject)
	case err != nil:
		return fmt.Errorf("the stream of %s: %w", l.subject, err)
	case slices.Contains(l.streams, name):
		return stop("stream %s takes %s: dead letters need a stream that is neither source nor target (--dead-letter)",
			name, l.subject)
	}
	return nil
}

// Keep implements [DeadLetters].
func (l *onLetters) Keep(ctx context.Context, letter *nats.Msg) error {
	letter.Subject = l.subject
	_, err := l.js.PublishMsg(ctx, letter)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && slices.Contains(refusals, api.ErrorCode) {
		return stop("the stream of %s refuses a dead letter: %v", l.subject, api)
	}
	if err != nil {
		return fmt.Errorf("a dead letter on %s is not acknowledged: %w", l.subject, err)
	}
	return nil
}

// Largest implements [DeadLetters].
func (l *onLetters) Largest() int { return int(l.js.Conn().MaxPayload()) - len(l.subject) }
