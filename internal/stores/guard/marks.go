package guard

import (
	"context"
	"errors"
	"fmt"

	"github.com/natsid/natsid/internal/stores/attempt"
	"github.com/natsid/natsid/segment"
)

// tagMarks are the marks of a guard. wrote is called with each write that may have landed.
type tagMarks struct {
	segment.Marks
	wrote segment.Wrote
}

// SetMark is that of [segment.Marks], with errOvertaken for [segment.ErrMarkMoved].
func (s *tagMarks) SetMark(ctx context.Context, tag string, m segment.Mark) (revision uint64, err error) {
	revision, err = s.Marks.SetMark(ctx, tag, m)
	if errors.Is(err, segment.ErrMarkMoved) {
		err = errOvertaken
	}
	return revision, err
}

// change sets the mark of a tag to the fields of t. If the mark is no longer was, nothing is changed, and the caller
// starts over.
func (s *tagMarks) change(ctx context.Context, how segment.How, t segment.Tag, was segment.Mark) error {
	m := was
	m.High, m.Least, m.Disabled = max(1, t.MaxID, m.High), t.Least, t.Disabled //mutant:changed
	m.Step, m.Description, m.Rules = t.Step, t.Description, t.Rules
	return s.replace(ctx, t.Name, how, was, m)
}

// replace replaces the mark was by m. If the outcome is unknown, it reads the mark again: the mark bears the write's
// token if the write has landed.
func (s *tagMarks) replace(ctx context.Context, tag string, how segment.How, was, m segment.Mark) error {
	try := attempt.New(m.Revision, attempt.Tokens(m.Tokens))
	m.Tokens = string(try.Tokens())
	err := s.write(ctx, tag, how, was, m)
	if err == nil || errors.Is(err, errOvertaken) || errors.Is(err, segment.ErrInvalid) {
		return err
	}
	err = fmt.Errorf("%w: %w", segment.ErrUncertain, err)
	now, again := s.Mark(ctx, tag)
	if again != nil {
		return err
	}
	switch try.Outcome(now.Revision, attempt.Tokens(now.Tokens)) {
	case attempt.Landed:
		return nil
	case attempt.Refused:
		return errOvertaken
	}
	return err
}

// write replaces the mark was by m, and reports the write.
func (s *tagMarks) write(ctx context.Context, tag string, how segment.How, was, m segment.Mark) (err error) {
	w := segment.Write{How: how, Before: was.High, After: m.High, Read: was.Revision, Replaced: was.Updated}
	w.Written, err = s.SetMark(ctx, tag, m)
	if !errors.Is(err, errOvertaken) && !errors.Is(err, segment.ErrInvalid) {
		s.wrote(tag, w)
	}
	return err
}

// with returns a row merged with its mark, with MarkAhead. If the row is above the mark, because others took IDs
// from the table or the mark is old, it reads the mark again.
func (s *tagMarks) with(ctx context.Context, row segment.Row, m segment.Mark) (segment.Tag, error) {
	if m.High > 0 && m.High < row.MaxID {
		var err error
		if m, err = s.Mark(ctx, row.Name); err != nil {
			return segment.Tag{}, err
		}
	}
	if m.High > 0 {
		row.MarkAhead = new(m.High - row.MaxID)
	}
	return merged(row, m), nil
}
