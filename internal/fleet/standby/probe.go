package standby

import (
	"context"
	"errors"
	"time"
)

// A probe is one probe of the store. A nil probe is over.
type probe struct {
	began  time.Time
	ended  chan struct{}
	cancel context.CancelFunc
}

// giveUp cancels a probe, and waits until it has ended.
func (p *probe) giveUp() {
	if p != nil {
		p.cancel()
		<-p.ended
	}
}

func (p *probe) isOver() bool {
	if p == nil {
		return true
	}
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// fails reports whether a probe fails, or takes longer than patience, and no load has succeeded since it began. The
// probe that is under way counts, unless it must be fresh.
func (w *Watch) fails(ctx context.Context, patience time.Duration, fresh bool) bool {
	before := w.store.writes()
	if fresh {
		w.probe.giveUp()
	}
	if w.probe.isOver() {
		w.probe = w.begin(ctx)
	}
	p := w.probe
	late := time.NewTimer(time.Until(p.began.Add(patience)))
	defer late.Stop()
	select {
	case <-p.ended:
	case <-late.C:
		w.store.isUnable(errNoAnswer, before)
	case <-w.store.wrote:
	}
	return w.store.isDoubted() && w.store.writes() == before
}

// begin begins a probe.
func (w *Watch) begin(ctx context.Context) *probe {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	p := &probe{began: time.Now(), ended: make(chan struct{}), cancel: cancel}
	before := w.store.writes()
	go func() {
		defer close(p.ended)
		defer cancel()
		switch err := w.cfg.Probe(ctx); {
		case err == nil:
			w.store.succeeded(p.began)
		case errors.Is(err, ErrNoProof):
			w.store.reassured()
		case errors.Is(err, context.Canceled):
			w.store.isUnable(errNoAnswer, before)
		default:
			w.store.isUnable(err, before)
		}
	}()
	return p
}
