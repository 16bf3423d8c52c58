// Package clienttest gives IDs from memory to unit tests of programs that draw IDs: it needs no server and no port.
package clienttest

import (
	"context"
	"fmt"
	"sync"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

// A Source is a [client.Source] from memory. Its IDs rise by 1, in the order of calls. It is safe for concurrent use.
type Source struct {
	mu      sync.Mutex
	last    subjects.ID // the last ID that was given
	failure error
}

var _ client.Source = (*Source)(nil)

// New returns a source whose first ID is 1.
func New() *Source { return From(1) }

// From returns a source whose first ID is first. From(1<<53) finds code that stores IDs in too few bits.
func From(first subjects.ID) *Source { return &Source{last: first - 1} }

// Fail makes calls fail with an error that wraps err, such as [client.ErrUnavailable], until Fail(nil). A failed call
// uses up no ID.
func (s *Source) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
}

// Next returns one ID. The error is that of [Source.Fail], or of ctx if it has ended.
func (s *Source) Next(ctx context.Context) (subjects.ID, error) {
	run, err := s.take(ctx, 1)
	return run.First, err
}

// NextN returns n IDs, 1 to [client.MaxIDs]; for another n the error is [client.ErrBadRequest]. Other errors are those
// of [Source.Next].
func (s *Source) NextN(ctx context.Context, n int) (subjects.Runs, error) {
	if n < 1 || n > client.MaxIDs {
		return nil, fmt.Errorf("%w: %d IDs: want 1 to %d", client.ErrBadRequest, n, client.MaxIDs)
	}
	run, err := s.take(ctx, subjects.ID(n))
	if err != nil {
		return nil, err
	}
	return subjects.Runs{run}, nil
}

func (s *Source) take(ctx context.Context, n subjects.ID) (subjects.Run, error) {
	if err := ctx.Err(); err != nil {
		return subjects.Run{}, fmt.Errorf("clienttest: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return subjects.Run{}, fmt.Errorf("clienttest: %w", s.failure)
	}
	s.last += n
	return subjects.Run{First: s.last - n + 1, Last: s.last}, nil
}
