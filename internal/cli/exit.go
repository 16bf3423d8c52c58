package cli

import (
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/subjects"
)

// An Exit is an exit code.
type Exit struct {
	Code    int
	Meaning string
}

// Exits returns the exit codes. The help and docs/reference.md show them.
func Exits() []Exit {
	return []Exit{
		{0, "done"},
		{1, "failed: NATS or the workers do not answer, or a fault was found"},
		{2, "called incorrectly: a flag, an argument, a variable, or the configuration file"},
		{3, "refused by the service: a worker answers with a code, or NATS refuses the user or a right"},
		{4, "not proven: `natsid audit` found no fault, and no proof; or `natsid number` ended its program"},
		{127, "`natsid number` cannot run its program; its other exit codes are the program's"},
	}
}

func exitCode(err error) int {
	if e, ok := errors.AsType[programEnd](err); ok {
		return e.code
	}
	switch {
	case err == nil:
		return 0
	case isA[usageError](err):
		return 2
	case isA[*subjects.Error](err), isA[*buckets.RightError](err), errors.Is(err, nats.ErrPermissionViolation),
		errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAccountAuthExpired):
		return 3
	case errors.Is(err, errNotProven):
		return 4
	}
	return 1
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

// errNotProven is returned by an audit that found no ID that was granted twice, but cannot rule that out.
var errNotProven = errors.New("it is not proven that no ID was granted twice")
