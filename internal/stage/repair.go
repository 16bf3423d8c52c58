package stage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Repair is a target whose last messages are not copies, or are gone. The zero value is one that needs no repair.
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

// hint returns the hint for a target that ends as r says.
func (r Repair) hint() Hint { return Hint{r.Last, r.created, r.After} }

// Remove returns the command that removes the messages that are not from a stage.
func (r Repair) Remove(target string) string {
	first, last := r.Foreign[len(r.Foreign)-1], r.Foreign[0]
	if first == last {
		return fmt.Sprintf("nats stream rmm %s %d -f", target, first)
	}
	return fmt.Sprintf("for i in $(seq %d %d); do nats stream rmm %s $i -f; done", first, last, target)
}

// foreign returns the [Stop] at a target whose last message is not from a stage. If all messages since the last copy
// are there, the Stop has a hint, with which the stage continues when they are removed.
func (s *Stage) foreign(ctx context.Context, t TargetState, src SourceState, why error) error {
	h, unread := s.hint(ctx)
	r, err := s.tail(ctx, t, src, h)
	if err != nil {
		return err
	}
	if len(r.Foreign) == 0 {
		return errMoved // it was removed since
	}
	what := fmt.Sprintf("message %d of the target is not from a stage: %v", t.Last, why)
	if n := len(r.Foreign); n > 1 {
		what = fmt.Sprintf("%d messages of the target, from %d to %d, are not from a stage", n, r.Foreign[n-1], t.Last)
	}
	found := &Stop{Why: fmt.Sprintf("%s: nothing else may publish to the target; remove with `%s`, and start the "+
		"stage again", what, r.Remove(s.cfg.TargetName))}
	if r.known && r.Gone == 0 && unread == nil {
		proof := r.hint()
		found.proof = &proof
	}
	return found
}

// Plan returns what Repair would do. The error is the [Stop] that no repair helps against.
func (s *Stage) Plan(ctx context.Context) (Repair, error) {
	_, stopped := s.locate(ctx)
	if _, ok := errors.AsType[*Stop](stopped); !ok {
		return Repair{}, stopped
	}
	t, err := s.target(ctx)
	if err != nil {
		return Repair{}, err
	}
	src, err := s.cfg.Source.State(ctx)
	if err != nil {
		return Repair{}, err
	}
	h, err := s.hint(ctx)
	if err != nil {
		return Repair{}, err
	}
	r, err := s.tail(ctx, t, src, h)
	if err == nil && (!r.known || r.Gone == 0) {
		err = stopped
	}
	return r, err
}

// Repair lets the stage continue after a position, if no copy is among the messages that are gone.
func (s *Stage) Repair(ctx context.Context, r Repair) error {
	if err := s.cfg.Target.SetHint(ctx, r.hint()); err != nil {
		return err
	}
	_, err := s.locate(ctx)
	return err
}
