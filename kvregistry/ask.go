package kvregistry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/workerid"
)

// A question asks which process has a worker number. The same question goes to a control: the subject of a number that
// no worker has. The two answers decide:
//
//	number          control         outcome
//	a worker's      -               that worker
//	no responders   -               ErrNoWorker
//	silence         no responders   an error: a subscriber to this number does not answer, and may have it
//	silence         silence         ErrBystander, if this worker's questions are delivered
//
// A bystander is a process or a stream that subscribes to the subjects of all numbers, and so receives both
// questions; the acknowledgement of a stream is not an answer. The server also drops questions silently where this
// worker may not publish them. So silence counts only after a question that this worker sent to itself has arrived.
type question struct {
	nc      *nats.Conn
	subject func(w int) string
	inbox   string
	answers chan *nats.Msg
}

// The reply subjects end in one of these, so that the answers to the two questions can be told apart.
const (
	ofNumber  = ".number"
	ofControl = ".control"
)

// Ask implements [workerid.Registry]. If the subject has no subscriber, the server reports that at once.
func (r *Registry) Ask(ctx context.Context, w int) (workerid.Who, error) {
	q := &question{
		nc: r.nc, subject: r.cfg.WorkerSubject, inbox: r.nc.NewInbox(), answers: make(chan *nats.Msg, 64),
	}
	// The server compares each new and each ended wildcard subscription with all subjects in use. So these
	// subscriptions have no wildcard.
	for _, of := range []string{ofNumber, ofControl} {
		sub, err := q.nc.ChanSubscribe(q.inbox+of, q.answers)
		if err != nil {
			return workerid.Who{}, err
		}
		// Unsubscribe fails only if the connection is closed.
		defer func() { _ = sub.Unsubscribe() }()
	}
	return q.ask(ctx, w)
}

// nobody returns a number that no worker has.
func nobody() int { return -1 - rand.Int() }

func (q *question) ask(ctx context.Context, w int) (who workerid.Who, err error) {
	for subject, of := range map[string]string{q.subject(w): ofNumber, q.subject(nobody()): ofControl} {
		if err := q.nc.PublishRequest(subject, q.inbox+of, nil); err != nil {
			return who, err
		}
	}
	own, delivered, controlUnserved := "", false, false // controlUnserved: nobody subscribes to the control
	half := time.After(halfOf(ctx))
	for {
		select {
		case m := <-q.answers:
			switch none := m.Header.Get("Status") == "503"; {
			case m.Subject == own:
				delivered = true
			case m.Subject == q.inbox+ofControl:
				controlUnserved = controlUnserved || none
			case none:
				return who, workerid.ErrNoWorker
			// An answer that is not a worker's, such as the acknowledgement of a stream, is ignored.
			case json.Unmarshal(m.Data, &who) == nil && who.Process != "":
				return who, nil
			}
		case <-half:
			sub, err := q.toMyself(&own)
			if err != nil {
				return who, err
			}
			defer func() { _ = sub.Unsubscribe() }()
		case <-ctx.Done():
			if delivered && !controlUnserved && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return workerid.Who{}, workerid.ErrBystander
			}
			return workerid.Who{}, fmt.Errorf("a subscriber to %s does not answer, or this worker may not publish "+
				"to it: %w", q.subject(w), ctx.Err())
		}
	}
}

// toMyself subscribes to the subject of another number that no worker has, stores the subject in own, and publishes
// to it. If the message arrives, the server delivers this worker's questions.
func (q *question) toMyself(own *string) (*nats.Subscription, error) {
	*own = q.subject(nobody())
	sub, err := q.nc.ChanSubscribe(*own, q.answers)
	if err != nil {
		return nil, err
	}
	return sub, q.nc.Publish(*own, nil)
}

// halfOf returns half of the time until the deadline of ctx; 1 s if it has none.
func halfOf(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return time.Second
	}
	return time.Until(end) / 2
}
