package app

import (
	"context"
	"errors"

	"github.com/natsid/natsid/internal/fleet/relay"
	"github.com/natsid/natsid/worker"
)

// registryOfLoads returns the ID of the registry that loads use, "" if it is not known yet.
func (p *program) registryOfLoads() string { return p.registry.member.Identity().Registry }

// probe returns nil once the stores take writes, or while the registry is stopped, which is no fault of a store.
func (p *program) probe(ctx context.Context) error {
	if p.registry.member.Stopped() != nil {
		return nil
	}
	return p.storage.probe(ctx)
}

// probe returns nil once each store that a load needs has taken a write that was sent after the call.
func (s *storage) probe(ctx context.Context) error {
	if s.table != nil {
		if err := s.table.Probe(ctx); err != nil {
			return err
		}
	}
	return s.registry.member.Prove(ctx)
}

// canLoad reports whether this worker can load ranges, as far as it knows. After a disconnection it cannot until its
// registry is checked again.
func (p *program) canLoad() bool {
	return len(p.reasons.Of(worker.Segment)) == 0 && p.segments.Trouble() == nil && p.watch.Trouble() == nil &&
		p.registry.member.Checked()
}

// findRelay implements [relay.Config.Find].
func (p *program) findRelay(ctx context.Context) error {
	err := p.worker.FindRelay(ctx)
	if errors.Is(err, worker.ErrNobodyLoads) {
		return relay.ErrNobody
	}
	return err
}

// turnAway implements [relay.Config.Change].
func (p *program) turnAway(isUnable, isFound bool) {
	p.worker.Wake()
	if isUnable {
		p.segments.TurnAway(isFound)
	} else {
		p.segments.Admit()
	}
}
