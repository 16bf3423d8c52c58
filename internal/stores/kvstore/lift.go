package kvstore

import (
	"context"
	"errors"

	"github.com/natsid/natsid/segment"
)

var _ segment.Lifter = (*Store)(nil)

// errLifted says that a mark needs no lift.
var errLifted = errors.New("kvstore: the mark is high enough")

// Lift implements [segment.Lifter]. The bounds are taken from the entry that the compare-and-set replaces: a load that
// is faster changes them. With a table, no load of natsid begins below the mark from then on, and the next poll lifts
// the row. If f.End exceeds the table's limit, the tag is exhausted.
//
// Law: marks are lifted while the registry is stopped, and an operator raises each by more than what was loaded. So an
// entry that was written for a bucket that is lost is an ordinary one from then on, as is one that Lift makes.
func (s *Store) Lift(ctx context.Context, tag string, f segment.Floor) (raised bool, err error) {
	f.End = min(f.End, s.limit())
	if f.End < 1 {
		return false, nil
	}
	err = s.change(ctx, tag, segment.ByLift, func(e *entry) error {
		mark, least := max(e.Mark, f.End), max(e.Least, min(e.Mark, f.End))
		if e.Mark == 0 { // it has no entry, or lost it
			least, e.Step = f.End, max(1, f.Step)
			e.Disabled = !f.Live || f.Step < 1 && s.cfg.Kind == Alone
			if f.Rules != nil {
				e.Rules = *f.Rules
			}
		}
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
