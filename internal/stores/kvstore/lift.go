package kvstore

import (
	"context"
	"errors"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/segment"
)

var _ segment.Lifter = (*Store)(nil)

// Lift implements [segment.Lifter].
func (s *Store) Lift(ctx context.Context, tag string, f segment.Floor) (raised bool, err error) {
	if f.End < 1 {
		return false, nil
	}
	raised, err = s.lift(ctx, tag, f)
	if !errors.Is(err, segment.ErrUnknownTag) {
		return raised, err
	}
	missing := entry{Mark: f.End, Least: f.End, Step: max(1, f.Step), Disabled: !f.Live || f.Step < 1}
	if f.Rules != nil {
		missing.Rules = *f.Rules
	}
	w := segment.Write{How: segment.ByLift, After: missing.Mark}
	if w.Written, err = s.kv.Create(ctx, tag, missing.encode()); errors.Is(err, buckets.ErrKeyExists) {
		return s.lift(ctx, tag, f)
	}
	s.wrote(tag, w, written(err))
	return err == nil, wrap(tag, err)
}

// errLifted says that a mark needs no lift.
var errLifted = errors.New("kvstore: the mark is high enough")

// lift is Lift for a tag that exists. The bounds are taken from the entry that the compare-and-set replaces: a load
// that is faster changes them.
//
// Law: marks are lifted while the registry is stopped, and an operator raises each by more than what was loaded. So an
// entry that was written for a bucket that is lost is an ordinary one from then on, as is one that Lift makes.
func (s *Store) lift(ctx context.Context, tag string, f segment.Floor) (raised bool, err error) {
	err = s.change(ctx, tag, segment.ByLift, func(e *entry) error {
		mark, least := max(e.Mark, f.End), max(e.Least, min(e.Mark, f.End))
		if mark == e.Mark && least == e.Least && e.First == "" {
			return errLifted
		}
		raised = mark > e.Mark
		e.Mark, e.Least, e.First = mark, least, ""
		return nil
	})
	if errors.Is(err, errLifted) {
		return false, nil
	}
	return raised && err == nil, err
}
