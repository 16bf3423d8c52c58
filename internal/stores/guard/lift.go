package guard

import (
	"context"
	"errors"

	"github.com/natsid/natsid/segment"
)

var _ segment.Lifter = (*Guard)(nil)

// Lift implements [segment.Lifter]: it lifts the mark first, and from then on no load of natsid begins below it; then
// the row, for loaders that know the table alone. A row that is missing stays missing. If f.End exceeds the table's
// limit, the tag is exhausted.
func (g *Guard) Lift(ctx context.Context, tag string, f segment.Floor) (raised bool, err error) {
	f.End = min(f.End, g.table.Limit())
	if f.End < 1 {
		return false, nil
	}
	err = retry(ctx, func() (err error) {
		raised, err = g.tryLift(ctx, tag, f)
		return err
	})
	if err != nil {
		return false, err
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
	if m.Revision == 0 { // the mark was lost, and with it its history
		least, m.Step, m.Disabled = f.End, f.Step, !f.Live
		if f.Rules != nil {
			m.Rules = *f.Rules
		}
	}
	if high == m.High && least == m.Least {
		return false, nil
	}
	raised = high > m.High
	m.High, m.Least = high, least
	return raised, g.marks.write(ctx, tag, segment.ByLift, was, m)
}
