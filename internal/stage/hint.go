package stage

import (
	"context"
	"time"
)

// A hinter writes the latest [Hint] in the background, so that the writes of batches do not wait for hints.
type hinter struct {
	latest chan Hint // holds at most one hint
	done   chan struct{}
}

func (s *Stage) newHinter(ctx context.Context) *hinter {
	h := &hinter{latest: make(chan Hint, 1), done: make(chan struct{})}
	ctx = context.WithoutCancel(ctx) // the last hint is written even after ctx has ended
	go func() {
		defer close(h.done)
		for hint := range h.latest {
			s.keep(ctx, hint)
		}
	}()
	return h
}

func (s *Stage) keep(ctx context.Context, hint Hint) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := s.cfg.Target.SetHint(ctx, hint); err != nil {
		s.note(func(p *Progress) { p.HintFailures++ })
		s.cfg.Log.Warn("the hint of the position cannot be written: it is needed only where all messages of "+
			"the target expire", "error", err)
	}
}

// set queues a hint (a position to be stored), in place of one that has not been written yet.
func (h *hinter) set(hint Hint) {
	select {
	case <-h.latest:
	default:
	}
	h.latest <- hint
}

func (h *hinter) close() {
	close(h.latest)
	<-h.done
}
