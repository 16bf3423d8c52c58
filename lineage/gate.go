package lineage

import (
	"context"
	"fmt"

	"github.com/natsid/natsid/segment"
)

// A gate is a store that loads only while the registry is sound.
type gate struct {
	segment.Store
	member *Member
}

// Gate returns the store for an allocator: loads, and tags made on first use, wait for [Member.Ready]. Everything else
// is the store's own, so that tags can be raised while the registry is stopped.
func (w *Member) Gate(store segment.Store) segment.Store { return gate{store, w} }

// Load implements [segment.Store].
func (g gate) Load(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	return g.load(ctx, func(ctx context.Context) (segment.Loaded, error) {
		return g.Store.Load(ctx, tag, n, max(floor, g.member.end(tag)))
	})
}

// LoadStrict implements [segment.Store].
func (g gate) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (segment.Loaded, error) {
	return g.load(ctx, func(ctx context.Context) (segment.Loaded, error) {
		return g.Store.LoadStrict(ctx, tag, join, max(floor, g.member.end(tag)))
	})
}

// load loads after a check, and uses the range only if the check still counts when the load ends.
//
// Law: a resume waits for longer than a check and a write count before it reads the marks that it raises. So no range
// of a load that did not know of the incident is used after that.
func (g gate) load(
	ctx context.Context, load func(context.Context) (segment.Loaded, error),
) (l segment.Loaded, err error) {
	if err := g.member.Ready(ctx); err != nil {
		return segment.Loaded{}, err
	}
	if l, err = load(ctx); err != nil {
		return segment.Loaded{}, err
	}
	return l, g.member.counts() //mutant:counts
}

// counts returns an error if a load that began while the registry was sound must not be used any more.
func (w *Member) counts() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.machine.countsAt(w.cfg.Now()) {
		return nil
	}
	if w.machine.why != nil {
		return w.machine.why
	}
	return fmt.Errorf("lineage: the load took longer than %v, and its range is a hole", fresh+writeTimeout)
}

// Create implements [segment.Store]: a tag is made on first use.
//
// Law: a tag that the bucket lacks begins at 1, so it must never have been loaded. After an incident only an operator
// knows which tags are missing.
func (g gate) Create(ctx context.Context, t segment.Tag, revive bool) (segment.Tag, error) {
	if err := g.member.Ready(ctx); err != nil {
		return segment.Tag{}, err
	}
	if g.member.Identity().Unconfirmed {
		return segment.Tag{}, ErrUnconfirmed
	}
	return g.Store.Create(ctx, t, revive)
}

// ErrUnconfirmed is why no tag is made on first use.
var ErrUnconfirmed = fmt.Errorf("%w: the registry was resumed, and may lack tags that were in use: create those with "+
	"--start above all their IDs, then confirm the list with `natsid resume`", segment.ErrUnknownTag)

// Poll implements [segment.Store]. A mark below what this worker loaded makes it check: only a write proves that the
// bucket went back.
func (g gate) Poll(ctx context.Context, see func(segment.Listing)) error {
	if err := g.member.Stopped(); err != nil {
		return err
	}
	floors := g.member.floors()
	low := false
	err := g.Store.Poll(ctx, func(l segment.Listing) {
		for _, t := range l.Tags {
			low = low || t.MaxID < floors[t.Name].End
		}
		see(l)
	})
	if err == nil && low {
		err = g.member.proveLow(ctx)
	}
	return err
}

// proveLow lifts the marks to this worker's floors. One that an acknowledged write found below proves that the bucket
// went back.
func (w *Member) proveLow(ctx context.Context) error {
	w.Doubt()
	if err := w.Ready(ctx); err != nil {
		return err
	}
	if err := w.enter(ctx); err != nil {
		return err
	}
	defer w.leave()
	below, err := w.lift(ctx)
	if err == nil && below != "" {
		w.WentBack(below)
	}
	return err
}
