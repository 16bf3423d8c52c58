package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/natsid/natsid/internal/fleet/loaders"
	"github.com/natsid/natsid/internal/fleet/relay"
	"github.com/natsid/natsid/segment"
)

// loads is the store of the allocator. A load takes these steps:
//
//  1. relay sees how long the load takes, and how it ends.
//  2. The limits and orders of tags are known: no load begins before.
//  3. A strict tag is loaded in the process of its loader, so that the compare-and-sets of workers do not race.
//  4. The registry is sound: [lineage.Member.Gate], before the load and when it ends.
//  5. The store raises the mark: by a compare-and-set, or in MySQL by an UPDATE.
//  6. The first range of a tag is used only once the tag is known not to be strict.
type loads struct {
	segment.Store // steps 4 and 5
	watch         *relay.Watch
	settings      orderly
	loaders       loader
	runsOut       func(tag, message string) // raises the alarm
	undecided     func(tag string)          // likewise
}

// orderly is the part of the settings that a load needs: see [fleet.Settings].
type orderly interface {
	Known(ctx context.Context) error
	CatchUp(ctx context.Context) error
}

// loader is the part of [loaders.Ring] that a load needs.
type loader interface {
	LoadStrict(ctx context.Context, tag string, join func() int64, floor int64, load loaders.LoadFunc) (
		segment.Loaded, error)
}

// Load implements [segment.Store].
func (s loads) Load(ctx context.Context, tag string, n, floor int64) (l segment.Loaded, err error) {
	ended := s.watch.Load()
	if err = s.settings.Known(ctx); err == nil {
		l, err = s.Store.Load(ctx, tag, n, floor)
	}
	s.watchEnd(tag, l, err)
	if err == nil && floor == 0 { // the first range of a tag: if the tag is strict, the allocator drops the range
		err = s.settings.CatchUp(ctx)
	}
	ended(err, segment.IsFinal(err))
	return l, err
}

// LoadStrict implements [segment.Store].
func (s loads) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (l segment.Loaded, err error) {
	ended := s.watch.Load()
	if err = s.settings.Known(ctx); err == nil {
		l, err = s.loaders.LoadStrict(ctx, tag, join, floor, s.Store.LoadStrict)
	}
	s.watchEnd(tag, l, err)
	ended(err, segment.IsFinal(err) || l.Passed)
	return l, err
}

// runsOutAt is the percentage of a tag's numbers whose use raises the alarm; so does each further percent.
const runsOutAt = 90

// watchEnd raises the alarm about a tag at the last percents of its numbers, and when a load finds none.
func (s loads) watchEnd(tag string, l segment.Loaded, err error) {
	if errors.Is(err, segment.ErrExhausted) {
		s.runsOut(tag, "no number is left to reserve: "+err.Error())
	}
	if errors.Is(err, segment.ErrUndecided) {
		s.undecided(tag)
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
