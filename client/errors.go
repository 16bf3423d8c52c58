package client

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// Errors of calls, beside the error of their context. Where a worker refused, errors.As finds its [*subjects.Error]
// too: the text names the reason.
var (
	// ErrNotServed: no worker serves the subject, as where natsid runs on another NATS or in another namespace. Start
	// it on this one.
	ErrNotServed = errors.New("client: no worker serves this")
	// ErrUnavailable: workers cannot issue now, as while JetStream has no leader, or before an operator resumes a
	// registry that is stopped. Ask again later; the log of the workers says why.
	ErrUnavailable = errors.New("client: workers cannot issue now")
	// ErrThrottled: too many requests, as beyond the rate of the tag. Back off.
	ErrThrottled = errors.New("client: too many requests")
	// ErrBadRequest: the request is malformed, as for a tag with a space. Fix it; to ask again cannot help.
	ErrBadRequest = errors.New("client: malformed request")
	// ErrUnknownTag: there is no such tag, as where it was deleted, or its name is misspelt. Create it.
	ErrUnknownTag = errors.New("client: no such tag")
	// ErrUsedUp: fewer numbers than requested are left of the tag, or of its day, month or year, as after the last of
	// 999999 tickets. MaxBatch of the [*subjects.Error] says how many. Raise the tag's maximum, or wait for the next
	// period.
	ErrUsedUp = errors.New("client: the numbers of the tag are used up")
	// ErrTagExists: there is such a tag already, for [Client.EnsureTag] one with other settings, as a step of 1000
	// where 5000 is wanted. Use it, or change it.
	ErrTagExists = errors.New("client: the tag exists")
	// ErrNotNatsid: the reply is not one of natsid's, but for example of another program or a JetStream stream on the
	// same subject. Stop that from answering.
	ErrNotNatsid = errors.New("client: the reply is not natsid's")
	// ErrBusy: too many calls of this handle wait already, as while NATS is away. Nothing was sent. Slow down, or find
	// out why natsid does not answer.
	ErrBusy = errors.New("client: too many calls wait already")
	// ErrClosed: the client or its connection is closed, as in a handler that outlives its server.
	ErrClosed = errors.New("client: closed")
)

// errUnwanted ends a request for which no caller waits any longer. No call returns it.
var errUnwanted = errors.New("client: no caller waits for the answer any longer")

// A refusedError is the answer of a worker, with the sentinel of its code.
type refusedError struct{ sentinel, refusal error }

func (e *refusedError) Error() string   { return "client: refused: " + e.refusal.Error() }
func (e *refusedError) Unwrap() []error { return []error{e.sentinel, e.refusal} }

// refusal returns an error that may be a worker's as an error of this package.
func refusal(err error) error {
	e, ok := errors.AsType[*subjects.Error](err)
	if !ok {
		return err
	}
	switch e.Code {
	case subjects.BadRequest:
		return &refusedError{ErrBadRequest, e}
	case subjects.NotFound:
		return &refusedError{ErrUnknownTag, e}
	case subjects.Conflict:
		return &refusedError{ErrTagExists, e}
	case subjects.UsedUp:
		return &refusedError{ErrUsedUp, e}
	case subjects.TooMany:
		return &refusedError{ErrThrottled, e}
	case subjects.Unavailable:
		return &refusedError{ErrUnavailable, e}
	}
	return e
}

// badRequest returns the error of arguments of which no worker needs to be asked.
func badRequest(format string, args ...any) error {
	return refusal(subjects.Errorf(subjects.BadRequest, format, args...))
}

// refused returns the refusal in a message, or nil.
func refused(m *nats.Msg) error {
	if e := subjects.ParseError(m.Header); e != nil {
		return refusal(e)
	}
	return nil
}

// isClosed reports whether an error is that of a connection that its owner has closed.
func isClosed(err error) bool {
	return errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionDraining)
}

func notServed(subject string) error {
	return fmt.Errorf("%w: no worker on %s; does natsid run on this NATS, in this namespace?", ErrNotServed, subject)
}

// notNatsid explains a reply that no worker sends, and logs the first.
func (c *Client) notNatsid(subject string, err error) error {
	c.foreign.Do(func() {
		cmp.Or(c.cfg.Log, slog.Default()).Warn("a reply is not natsid's: find the stream or program that sent it",
			"subject", subject, "error", err)
	})
	return fmt.Errorf("%w: %w; does a JetStream stream or another program listen on %s?", ErrNotNatsid, err, subject)
}
