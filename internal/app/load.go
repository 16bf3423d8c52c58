package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/natsid/natsid/internal/fleet"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// loads is the store from which the allocator loads ranges. A load takes these steps:
//
//  1. watch is informed when the load begins, and how it ends.
//  2. [fleet.StrictTags] load a strict tag for which workers contend in one of them, so that no compare-and-sets race.
//  3. [lineage.Member.Gate] checks that the registry is sound, before the load and when it ends.
//  4. The store raises the mark: by a compare-and-set, or in MySQL by an UPDATE.
type loads struct {
	segment.Store // steps 2 to 4
	watch         *fleet.Watch
	runsOut       func(tag, message string) // raises the alarm
	undecided     func(tag string, is bool) // raises the alarm, or ends it
}

// Load implements [segment.Store].
func (s loads) Load(ctx context.Context, tag string, n, floor int64) (l segment.Loaded, err error) {
	ended := s.watch.Load()
	l, err = s.Store.Load(ctx, tag, n, floor)
	s.watchEnd(tag, l, err)
	ended(err, segment.IsFinal(err))
	return l, err
}

// LoadStrict implements [segment.Store].
func (s loads) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (l segment.Loaded, err error) {
	ended := s.watch.Load()
	l, err = s.Store.LoadStrict(ctx, tag, join, floor)
	s.watchEnd(tag, l, err)
	ended(err, segment.IsFinal(err) || l.Passed)
	return l, err
}

// runsOutAt is the percentage of a tag's numbers that raises the alarm when it is reserved; each further percent raises
// it again.
const runsOutAt = 90

// watchEnd raises the alarm if few numbers of a tag are left, if none is left, or if the tag is undecided.
func (s loads) watchEnd(tag string, l segment.Loaded, err error) {
	if x, _ := errors.AsType[*segment.ExhaustedError](err); x == nil && errors.Is(err, segment.ErrExhausted) {
		s.runsOut(tag, "no number is left to reserve: "+err.Error())
	}
	if is := errors.Is(err, segment.ErrUndecided); is || err == nil {
		s.undecided(tag, is)
	}
	if err != nil {
		return
	}
	before, now := int(100*l.Rules.Used(l.Start)), int(100*l.Rules.Used(l.End))
	if now >= runsOutAt && now > before {
		s.runsOut(tag, fmt.Sprintf("%d %% of its numbers are reserved, up to %d", now, l.End-1))
	}
}

// Poll implements [segment.Store].
func (s loads) Poll(ctx context.Context, see func(segment.Listing)) error {
	err := s.Store.Poll(ctx, see)
	if err != nil && ctx.Err() == nil {
		s.watch.Suspect()
	}
	return err
}

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

// findRelay implements [fleet.WatchConfig.Find].
func (p *program) findRelay(ctx context.Context) error {
	err := p.worker.FindRelay(ctx)
	if errors.Is(err, worker.ErrNobodyLoads) {
		return fleet.ErrNobody
	}
	return err
}

// turnAway implements [fleet.WatchConfig.Change].
func (p *program) turnAway(isUnable, isFound bool) {
	p.worker.Wake()
	if isUnable {
		p.segments.TurnAway(isFound)
	} else {
		p.segments.Admit()
	}
}
