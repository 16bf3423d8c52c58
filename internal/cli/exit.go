package cli

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/gather"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/subjects"
)

// Exit codes.
const (
	exitDone    = 0 // the command did its work
	exitRefused = 1 // the command was refused, or failed
	exitUsage   = 2 // the command was called incorrectly
	exitUnknown = 2 // an audit found no fault, and no proof: its output gives the reason
	exitNobody  = 3 // no worker serves: NATS is not reached, or no worker answers there
)

// exitCode returns the exit code of a command that ended with err.
func exitCode(err error) int {
	switch {
	case err == nil:
		return exitDone
	case isA[usageError](err):
		return exitUsage
	case isA[notProvenError](err):
		return exitUnknown
	case isA[*subjects.Error](err), isA[*app.JoinError](err), isA[*buckets.RightError](err):
		return exitRefused // a worker answered, with any outcome
	case isA[nobodyError](err), errors.Is(err, client.ErrNotServed), errors.Is(err, gather.ErrNobody),
		errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrTimeout),
		errors.Is(err, context.DeadlineExceeded):
		return exitNobody
	}
	return exitRefused
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// usageError marks an error in the use of a command.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// notProvenError marks the error of an audit that found no proof.
type notProvenError struct{ error }

func (e notProvenError) Unwrap() error { return e.error }

// nobodyError marks an error which means that no worker serves.
type nobodyError struct{ error }

func (e nobodyError) Unwrap() error { return e.error }
