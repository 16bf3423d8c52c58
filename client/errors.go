package client

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// Errors of calls, besides the error of the call's context. If a worker refused, errors.As also finds its
// [*subjects.Error], whose text names the reason.
var (
	// ErrNotServed: no worker serves the subject, for example since natsid runs on another NATS or in another
	// namespace. Start natsid on this NATS and in this namespace.
	ErrNotServed = errors.New("client: no worker serves this")
	// ErrUnavailable: workers cannot issue now, for example while JetStream has no leader, or until an operator resumes
	// a stopped registry. Ask again later; the log of the workers says why.
	ErrUnavailable = errors.New("client: workers cannot issue now")
	// ErrThrottled: too many requests, for example above the rate of the tag. Back off.
	ErrThrottled = errors.New("client: too many requests")
	// ErrBadRequest: the request is malformed, for example its tag has a space. Fix it; to ask again cannot help.
	ErrBadRequest = errors.New("client: malformed request")
	// ErrUnknownTag: there is no such tag, for example since it was deleted or its name is misspelt. Create it.
	ErrUnknownTag = errors.New("client: no such tag")
	// ErrUsedUp: the tag, or its day, month or year, has fewer numbers left than requested, for example after the last
	// of 999999 tickets. MaxBatch of the [*subjects.Error] says how many are left. Raise the tag's maximum, or wait for
	// the next period.
	ErrUsedUp = errors.New("client: the numbers of the tag are used up")
	// ErrTagExists: the tag exists already; from [Client.EnsureTag]: with other settings, for example a step of 1000
	// instead of 5000. Use it, or change it.
	ErrTagExists = errors.New("client: the tag exists")
	// ErrNotNatsid: the reply is not from natsid, but for example from another program or a JetStream stream on the
	// same subject. Stop that program or stream from answering.
	ErrNotNatsid = errors.New("client: the reply is not natsid's")
	// ErrBusy: too many calls of this handle wait already, for example while NATS is away. Nothing was sent. Slow down,
	// or find out why natsid does not answer.
	ErrBusy = errors.New("client: too many calls wait already")
	// ErrClosed: the client or its connection is closed, for example in a handler that outlives its server.
	ErrClosed = errors.New("client: closed")
)

// errUnwanted ends a request for which no caller waits any longer. No call returns it.
var errUnwanted = errors.New("client: no caller waits for the answer any longer")

// A refusedError is the refusal of a worker, with the sentinel of its code.
type refusedError struct{ sentinel, refusal error }

func (e *refusedError) Error() string   { return "client: refused: " + e.refusal.Error() }
func (e *refusedError) Unwrap() []error { return []error{e.sentinel, e.refusal} }

// refusal adds the sentinel of its code to the error of a worker, and returns other errors as they are.
func refusal(err error) error {
	e, ok := errors.AsType[*subjects.Error](err)
	if !ok {
		return err
	}
	if sentinel, ok := sentinels[e.Code]; ok {
		return &refusedError{sentinel, e}
	}
	return e
}

var sentinels = map[subjects.Code]error{
	subjects.BadRequest: ErrBadRequest, subjects.NotFound: ErrUnknownTag, subjects.Conflict: ErrTagExists,
	subjects.UsedUp: ErrUsedUp, subjects.TooMany: ErrThrottled, subjects.Unavailable: ErrUnavailable,
}

// badRequest returns the error for arguments that the client refuses without asking a worker.
func badRequest(format string, args ...any) error {
	return refusal(subjects.Errorf(subjects.BadRequest, format, args...))
}

// refused returns the refusal that a message holds, or nil.
func refused(m *nats.Msg) error {
	if e := subjects.ParseError(m.Header); e != nil {
		return refusal(e)
	}
	return nil
}

// isClosed reports whether an error says that the owner has closed the connection.
func isClosed(err error) bool {
	return errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionDraining)
}

func notServed(subject string) error {
	return fmt.Errorf("%w: no worker on %s; does natsid run on this NATS, in this namespace?", ErrNotServed, subject)
}

// notNatsid returns the error of a reply that no worker would send. It logs the first such reply.
func (c *Client) notNatsid(subject string, err error) error {
	c.foreign.Do(func() {
		c.cfg.Log.Warn("a reply is not natsid's: find the stream or program that sent it",
			"subject", subject, "error", err)
	})
	return fmt.Errorf("%w: %w; does a JetStream stream or another program listen on %s?", ErrNotNatsid, err, subject)
}
