package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// loads is the store from which the allocator loads ranges of IDs. A load takes these steps:
//
//  1. watch is told that the load begins, and later how it ended.
//  2. [fleet.StrictTags] load a contended strict tag in one worker alone, so that no compare-and-sets race.
//  3. [lineage.Member.Gate] checks, before and after the load, that the buckets were neither lost nor set back.
//  4. The store raises the mark, the tag's next ID in the bucket, by a compare-and-set; then the row in MySQL, if any.
type loads struct {
	segment.Store // steps 2 to 4
	watch         *worker.Watch
	alarms        *alarms
}

// Load implements [segment.Store].
func (s loads) Load(ctx context.Context, tag string, n, floor int64) (l segment.Loaded, err error) {
	ended := s.watch.Load()
	l, err = s.Store.Load(ctx, tag, n, floor)
	s.raiseAlarms(tag, l, err)
	ended(err, segment.IsFinal(err))
	return l, err
}

// LoadStrict implements [segment.Store].
func (s loads) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (l segment.Loaded, err error) {
	ended := s.watch.Load()
	l, err = s.Store.LoadStrict(ctx, tag, join, floor)
	s.raiseAlarms(tag, l, err)
	ended(err, segment.IsFinal(err) || l.Passed)
	return l, err
}

// fullAt is the percentage of a tag's numbers that are reserved when the alarm is first raised. Each further percent
// raises it again.
const fullAt = 90

// raiseAlarms raises the alarms about a tag to which a load leads: few numbers are left, none is left, or an operator
// must say where the tag goes on. A load that succeeds ends the last alarm.
func (s loads) raiseAlarms(tag string, l segment.Loaded, err error) {
	fills := func(how string) { s.alarms.raiseAbout(wire.AlarmTagFillsUp, tag, "tag "+tag+": "+how) }
	switch x, _ := errors.AsType[*segment.ExhaustedError](err); {
	case x == nil && errors.Is(err, segment.ErrExhausted):
		fills("no number is left to reserve: " + err.Error())
	case errors.Is(err, segment.ErrUndecided):
		s.alarms.raiseAbout(wire.AlarmTagUndecided, tag,
			"tag "+tag+" is not served until an operator says where it goes on")
	case err == nil:
		s.alarms.end(wire.AlarmTagUndecided, tag)
		before, now := int(100*l.Rules.Used(l.Start)), int(100*l.Rules.Used(l.End))
		if now >= fullAt && now > before {
			fills(fmt.Sprintf("%d %% of its numbers are reserved, up to %d", now, l.End-1))
		}
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

// registryOfLoads returns the ID of the registry from which this worker loads, "" if the ID is not known yet.
func (p *program) registryOfLoads() string { return p.registry.member.Identity().Registry }

// probe implements [worker.WatchConfig.Probe]: it returns nil once each store that a load needs has acknowledged a
// write of this call. While the registry is stopped it returns nil at once, since the stores are not at fault.
func (p *program) probe(ctx context.Context) error {
	if p.registry.member.Stopped() != nil {
		return nil
	}
	if t := p.storage.table; t != nil {
		if err := t.Probe(ctx); err != nil {
			return err
		}
	}
	return p.registry.member.Prove(ctx)
}

// canLoad reports whether this worker can load ranges, as far as it knows. Once the control connection was lost,
// canLoad reports false until the registry is checked again.
func (p *program) canLoad() bool {
	return len(p.reasons.Of(worker.Segment)) == 0 && p.segments.Trouble() == nil && p.watch.Trouble() == nil &&
		p.registry.member.Checked()
}

// turnAway implements [worker.WatchConfig.Change].
func (p *program) turnAway(isUnable, isFound bool) {
	p.worker.Wake()
	if isUnable {
		p.segments.TurnAway(isFound)
	} else {
		p.segments.Admit()
	}
}
