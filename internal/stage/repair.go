package stage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Repair is a target whose last messages are not copies, or are gone. The zero value needs no repair.
type Repair struct {
	Last    uint64   // the target's last sequence
	After   Position // the last message of the source that was copied, or passed, before these messages
	Foreign []uint64 // messages that are not from a stage; the latest first
	Gone    uint64   // messages that the target does not hold

	created time.Time // of the target
	known   bool      // After is known
}

// mostForeign is how many messages at the end of a target are looked at.
const mostForeign = 1000

// tail reads the target backwards, to the last copy. A hint for a message on the way tells how far the source was
// copied. Where nothing is gone since, this is proven.
func (s *Stage) tail(ctx context.Context, t TargetState, src SourceState, h Hint) (r Repair, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 6*answersWithin)
	defer cancel()
	r = Repair{Last: t.Last, created: t.Created}
	for seq := t.Last; t.Last-seq < mostForeign; seq-- {
		if !r.known && h.Last == seq && h.Created.Equal(t.Created) && h.Position.isOf(s.cfg.SourceName, src) {
			r.After, r.known = h.Position, true
		}
		if seq == 0 {
			if !r.known && r.Gone == 0 {
				r.After, err = s.beginning(ctx, src)
				r.known = err == nil
			}
			return r, err
		}
		header, held, err := s.cfg.Target.Header(ctx, seq)
		if err != nil {
			return r, err
		}
		switch p, none := positionIn(header); {
		case held && none == nil:
			if !r.known {
				r.After, r.known = p, true
			}
			return r, nil
		case held:
			r.Foreign = append(r.Foreign, seq)
		case !r.known:
			r.Gone++
		}
	}
	return r, nil
}

// Remove returns the command that removes the messages that are not from a stage.
func (r Repair) Remove(target string) string {
	first, last := r.Foreign[len(r.Foreign)-1], r.Foreign[0]
	if first == last {
		return fmt.Sprintf("nats stream rmm %s %d -f", target, first)
	}
	return fmt.Sprintf("for i in $(seq %d %d); do nats stream rmm %s $i -f; done", first, last, target)
}

// unknown returns the [Stop] at a target whose last message is gone, or not from a stage: then foreign says why.
func (s *Stage) unknown(ctx context.Context, t TargetState, src SourceState, h Hint, foreign error) error {
	r, err := s.tail(ctx, t, src, h)
	if err != nil {
		return err
	}
	why := &Stop{repair: r}
	switch n := len(r.Foreign); {
	case foreign != nil && n == 0:
		return errMoved // it was removed since
	case foreign != nil:
		why.Why = fmt.Sprintf("message %d of the target is not from a stage: %v (there are %d such messages): nothing "+
			"else may publish to the target; remove with `%s`, and start the stage again",
			t.Last, foreign, n, r.Remove(s.cfg.TargetName))
	case r.known:
		why.Why = fmt.Sprintf("the target's last message, %d, was removed, or has expired, and the last copy that is "+
			"known is of message %d of the source: if no copy is missing, `natsid stamp --repair` continues after it; "+
			"otherwise copy to a new target", t.Last, r.After.Seq)
	default:
		why.Why = fmt.Sprintf("the target's last message, %d, was removed, or has expired, and nothing else says how "+
			"far the source was copied (the hint is for message %d): copy to a new target", t.Last, h.Last)
	}
	return why
}

// remember writes a hint for a target that ends with messages that are not from a stage, if no message is gone since
// the last copy: then the stage continues once they are removed.
func (s *Stage) remember(ctx context.Context, err error) {
	if why, ok := errors.AsType[*Stop](err); ok && why.repair.known && why.repair.Gone == 0 {
		s.keep(ctx, why.repair.hint())
	}
}

func (r Repair) hint() Hint { return Hint{r.Last, r.created, r.After} }

// Plan returns what Repair would do. The error may be a [Stop] that no repair helps against.
func (s *Stage) Plan(ctx context.Context) (Repair, error) {
	_, err := s.locate(ctx)
	if why, ok := errors.AsType[*Stop](err); ok && why.repair.known && why.repair.Gone > 0 {
		return why.repair, nil
	}
	return Repair{}, err
}

// Repair lets stages continue after a position, if no copy is among the messages that are gone.
func (s *Stage) Repair(ctx context.Context, r Repair) error {
	if err := s.cfg.Target.SetHint(ctx, r.hint()); err != nil {
		return err
	}
	_, err := s.locate(ctx)
	return err
}
