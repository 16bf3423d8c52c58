package kvstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/attempt"
)

// Mark implements [segment.Marks].
func (s *Store) Mark(ctx context.Context, tag string) (segment.Mark, error) {
	if err := s.refusedFor(tag); err != nil {
		return segment.Mark{}, err
	}
	kve, err := s.kv.Get(ctx, tag)
	if errors.Is(err, buckets.ErrNoKey) {
		return segment.Mark{}, nil
	}
	if err != nil {
		return segment.Mark{}, wrap(tag, err)
	}
	e, err := s.decode(kve)
	if err != nil {
		return segment.Mark{}, err
	}
	return e.mark(kve), nil
}

// SetMark implements [segment.Marks].
func (s *Store) SetMark(ctx context.Context, tag string, m segment.Mark) (revision uint64, err error) {
	if err := s.refusedFor(tag); err != nil {
		return 0, err
	}
	e := entry{
		Mark: m.High, Seen: m.Seen, Least: m.Least,
		Step: max(1, m.Step), Description: m.Description, Disabled: m.Disabled, Tokens: attempt.Tokens(m.Tokens),
		Record: m.Record,
	}
	if m.Revision == 0 {
		revision, err = s.kv.Create(ctx, tag, e.encode()) //mutant:first-mark
	} else {
		revision, err = s.kv.Update(ctx, tag, e.encode(), m.Revision)
	}
	if isOvertaken(err) {
		return 0, segment.ErrMarkMoved
	}
	if errors.Is(err, buckets.ErrInvalidKey) {
		return 0, segment.ErrInvalid
	}
	return revision, wrap(tag, err)
}

// AllMarks implements [segment.Marks]. A damaged entry has no mark that could be raised; loads of the tag name it.
func (s *Store) AllMarks(ctx context.Context) (map[string]segment.Mark, error) {
	if err := s.refused(); err != nil {
		return nil, err
	}
	all, _, err := s.kv.AllAndRemoved(ctx)
	if err != nil {
		return nil, fmt.Errorf("kvstore: list: %w", err)
	}
	marks := make(map[string]segment.Mark, len(all))
	for tag, kve := range all {
		e, err := s.decode(kve)
		if err != nil {
			continue
		}
		marks[tag] = e.mark(kve)
	}
	s.deleted.Store(deleted(marks))
	return marks, nil
}

// Deleted is the tags that were deleted.
type Deleted struct {
	Names []string // the first of them, in order
	More  int      // how many there are beside
}

// namedDeleted is how many deleted tags are named.
const namedDeleted = 50

func deleted(marks map[string]segment.Mark) *Deleted {
	var names []string
	for tag, m := range marks {
		if m.Disabled {
			names = append(names, tag)
		}
	}
	slices.Sort(names)
	first := names[:min(len(names), namedDeleted)]
	return &Deleted{Names: slices.Clone(first), More: len(names) - len(first)}
}

// Deleted returns the tags that were deleted when AllMarks was called last. Where the marks guard a table and are lost,
// the table does not know that these tags were deleted, and serves them.
func (s *Store) Deleted() Deleted {
	if d := s.deleted.Load(); d != nil {
		return *d
	}
	return Deleted{}
}
