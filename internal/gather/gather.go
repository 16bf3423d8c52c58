// Package gather sends a question over NATS to many subscribers, and collects their answers; it is internal to natsid
// and may change.
package gather

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// ErrNobody is returned if NATS says at once that nobody subscribes to a subject.
var ErrNobody = errors.New("nobody listens on that subject")

// All publishes a question, and calls hear with each answer until hear returns true or ctx ends; then it returns nil.
// It returns [ErrNobody] if nobody subscribes to the subject. hear runs on the caller's goroutine.
func All(
	ctx context.Context, nc *nats.Conn, subject string, question []byte, hear func(answer *nats.Msg) (enough bool),
) error {
	// nats.go's own request inboxes take one answer each, so this subscribes to a new one.
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
