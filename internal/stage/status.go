package stage

import (
	"cmp"
	"context"
	"time"
)

// A Status is how far a source is copied. If the target ends with messages that are not copies, or with messages that
// are gone, only people know whether a copy is gone. If no copy is gone, an operator may store the Hint, and stages
// continue. The Hint also skips messages that left the source before they were copied. It is after the last copy, so
// no message gets a second ID.
type Status struct {
	Hint           // the position, for the target's last sequence
	Behind  uint64 // number of messages of the source after the position
	Foreign uint64 // messages of the target after the last known copy that are not from a stage
	Gone    uint64 // messages after that copy that are no longer in the target; a copy among them would be made again
	Missed  uint64 // messages that have left the source, and are not copied
	Why     string // why stages stop, if one of these numbers is not 0
}

// Status reads the target backwards to its last copy, or to the message that the hint is for. It returns a [Stop] if
// neither shows a position, or if a stage would stop for another reason than foreign, gone or missed messages.
func (s *Stage) Status(ctx context.Context) (r Status, err error) {
	t, err := s.target(ctx)
	src, unknown := s.cfg.Source.State(ctx)
	h, unread := s.hint(ctx)
	if err = cmp.Or(err, unknown, unread); err != nil {
		return r, err
	}
	counts := h.Created.Equal(t.Created) && h.Position.isOf(s.cfg.SourceName, src) &&
		(h.Repaired || !t.Removed || h.Last < t.Last)
	r.Last, r.Created, r.Repaired = t.Last, t.Created, true
	seq, isCopy := t.Last, false
	for seq >= max(t.First, 1) && !isCopy && !(counts && h.Last == seq) {
		header, held, err := s.cfg.Target.Header(ctx, seq)
		if err != nil {
			return r, err
		}
		p, none := positionIn(header)
		switch isCopy = held && none == nil; {
		case isCopy:
			r.Position = p
			continue
		case held:
			r.Foreign++
		default:
			r.Gone++
		}
		seq--
	}
	switch {
	case seq == t.Last && (seq == 0 || isCopy || counts && h.Last == seq):
		r.Position, err = s.position(ctx, t, src)
	case isCopy:
	case counts && h.Last <= seq:
		r.Position, r.Gone = h.Position, r.Gone+seq-h.Last
	case seq == 0:
		r.Position, err = s.beginning(ctx, src)
	default:
		err = stop("the target holds no copy, and no hint says how far the source was copied: copy to a new target")
	}
	if err = cmp.Or(err, s.origin.holds(ctx, r.Position, src)); err != nil {
		return r, err
	}
	if next := r.Position.Seq + 1; src.First > next {
		r.Missed = src.First - next
		r.Position.Seq, r.Position.Time = src.First-1, time.Time{}
	}
	if r.Foreign+r.Gone+r.Missed > 0 {
		if _, why := s.locate(ctx); why != nil {
			r.Why = why.Error()
		}
	}
	r.Behind = src.End - min(src.End, r.Position.Seq)
	return r, err
}
