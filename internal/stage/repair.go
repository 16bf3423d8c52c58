package stage

import (
	"cmp"
	"context"
)

// A Repair lets stages continue at a target that ends with messages that are not copies, or are gone.
type Repair struct {
	Hint           // has the position of the last known copy, for the target's last sequence
	Foreign uint64 // messages after that copy that are not from a stage
	Gone    uint64 // messages after it that the target does not hold: a copy among them would be copied again
}

// Plan reads the target backwards to its last copy, or to a message that the hint is for. Only people know whether a
// copy is gone: if none is, they may store the Hint of the Repair. There is nothing to repair if no message is foreign
// or gone. The error is a [Stop] if nothing tells a position.
func (s *Stage) Plan(ctx context.Context) (r Repair, err error) {
	t, err := s.target(ctx)
	src, unknown := s.cfg.Source.State(ctx)
	h, unread := s.hint(ctx)
	if err = cmp.Or(err, unknown, unread); err != nil {
		return r, err
	}
	counts := h.Created.Equal(t.Created) && h.Position.isOf(s.cfg.SourceName, src)
	r.Last, r.Created = t.Last, t.Created
	seq := t.Last
	for ; seq >= max(t.First, 1); seq-- {
		if counts && h.Last == seq {
			r.Position = h.Position
			return r, nil
		}
		header, held, err := s.cfg.Target.Header(ctx, seq)
		if err != nil {
			return r, err
		}
		switch p, err := positionIn(header); {
		case held && err == nil:
			r.Position = p
			return r, nil
		case held:
			r.Foreign++
		default:
			r.Gone++
		}
	}
	switch {
	case counts && h.Last <= seq:
		r.Position, r.Gone = h.Position, r.Gone+seq-h.Last
	case seq == 0:
		r.Position, err = s.beginning(ctx, src)
	default:
		err = stop("the target holds no copy, and no hint says how far the source was copied: copy to a new target")
	}
	return r, err
}
