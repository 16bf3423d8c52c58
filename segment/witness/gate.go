package witness

import (
	"context"
	"fmt"

	"github.com/natsid/natsid/segment"
)

// A gate is a store that loads only after its witness has checked the bucket.
type gate struct {
	segment.Store
	witness *Witness
}

// Gate returns the store for an allocator: loads, and tags made on first use, wait for [Witness.Ready]. Everything else
// is the store's own, so that tags can be raised while loads are held.
func (w *Witness) Gate(store segment.Store) segment.Store { return gate{store, w} }

// Load implements [segment.Store].
func (g gate) Load(ctx context.Context, tag string, n, floor int64) (segment.Loaded, error) {
	if err := g.witness.Ready(ctx); err != nil {
		return segment.Loaded{}, err
	}
	return g.Store.Load(ctx, tag, n, floor)
}

// LoadStrict implements [segment.Store].
func (g gate) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (segment.Loaded, error) {
	if err := g.witness.Ready(ctx); err != nil {
		return segment.Loaded{}, err
	}
	return g.Store.LoadStrict(ctx, tag, join, floor)
}

// Create implements [segment.Store]: a tag is made on first use.
func (g gate) Create(ctx context.Context, t segment.Tag, revive bool) (segment.Tag, error) {
	if err := g.witness.Ready(ctx); err != nil {
		return segment.Tag{}, err
	}
	if err := g.witness.mayMake(ctx); err != nil {
		return segment.Tag{}, err
	}
	return g.Store.Create(ctx, t, revive)
}

// Poll implements [segment.Store]. A mark below what this worker had loaded before the poll shows that the bucket went
// back, if it is still there after the witness was written.
func (g gate) Poll(ctx context.Context, see func(segment.Listing)) error {
	floors := g.witness.memory.Floors()
	var low []string
	err := g.Store.Poll(ctx, func(l segment.Listing) {
		for _, t := range l.Tags {
			if t.MaxID < floors[t.Name].End {
				low = append(low, t.Name)
			}
		}
		see(l)
	})
	if err == nil && len(low) > 0 {
		err = g.confirm(ctx, low[0], floors[low[0]].End)
	}
	return err
}

func (g gate) confirm(ctx context.Context, tag string, floor int64) error {
	g.witness.Reconnected()
	if err := g.witness.Ready(ctx); err != nil {
		return err
	}
	t, err := g.Store.Look(ctx, tag)
	if err == nil && t.MaxID < floor {
		g.witness.WentBack(fmt.Sprintf("the mark of tag %s is %d, and this worker had loaded up to %d",
			tag, t.MaxID, floor))
	}
	return err
}
