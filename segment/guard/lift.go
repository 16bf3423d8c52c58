package guard

import (
	"context"
	"errors"

	"github.com/natsid/natsid/segment"
)

var _ segment.Lifter = (*Guard)(nil)

// Lift implements [segment.Lifter]: it lifts the mark first, from where on no load of natsid begins below, then the row
// for the sake of loaders that know the table alone. A row that is missing stays missing, and what a column cannot hold
// exhausts the tag.
func (g *Guard) Lift(ctx context.Context, tag string, f segment.Floor) (raised bool, err error) {
	f.End = min(f.End, g.table.Limit())
	if f.End < 1 {
		return false, nil
	}
	if g.marks != nil {
		err := retry(ctx, func() (err error) {
			raised, err = g.tryLift(ctx, tag, f)
			return err
		})
		if err != nil {
			return false, err
		}
	}
	_, err = g.table.Advance(ctx, tag, f.End-1, f.End)
	if errors.Is(err, segment.ErrUnknownTag) {
		err = nil
	}
	return raised, err
}

func (g *Guard) tryLift(ctx context.Context, tag string, f segment.Floor) (raised bool, err error) {
	was, err := g.marks.Mark(ctx, tag)
	if err != nil {
		return false, err
	}
	m := was
	high, least := max(m.High, f.End), max(m.Least, min(m.High, f.End))
	if m.Revision == 0 { // a lost mark: nothing is known of its history
		least, m.Step, m.Disabled = f.End, f.Step, !f.Live
	}
	if high == m.High && least == m.Least {
		return false, nil
	}
	raised = high > m.High
	m.High, m.Least = high, least
	return raised, g.write(ctx, tag, segment.ByLift, was, m)
}
