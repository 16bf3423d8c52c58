package segment

import (
	"context"
	"sync/atomic"
)

// A Lifter raises marks to what is known of them elsewhere, where a store may have gone back, or where two stores gave
// out IDs of one tag.
type Lifter interface {
	// Lift raises the mark of a tag to at least f.End, by compare-and-set, and reports whether the mark was lower. It
	// lowers nothing.
	//
	// Law: where a tag has two histories, one that ends at the mark m found here and one that ends at f.End, IDs
	// below both may be in two memories. Those between are in one at most, and those above are spent by none. So Lift
	// sets the mark to max(m, f.End), and [Tag.Least] to at least min(m, f.End): memories below are discarded. Lifted
	// twice, a tag may lose more of them, which costs holes.
	//
	// A tag that is missing is created with its mark and its Least at f.End: with f.Step if f.Live, so that it is
	// served on above everything known; disabled otherwise, so that only its operator brings it back to life.
	Lift(ctx context.Context, tag string, f Floor) (raised bool, err error)
}

// A Floor is what a process knows of a tag by its own loads.
type Floor struct {
	End  int64 // no ID at or above it was ever loaded by this process
	Step int64 // the configured step, 0 if it is not known
	Live bool  // the tag was not deleted when it was last seen
}

// A holdup is why no range is loaded; empty if ranges are loaded.
type holdup struct{ why atomic.Pointer[error] }

func (h *holdup) err() error {
	if why := h.why.Load(); why != nil {
		return *why
	}
	return nil
}

// Hold makes every load fail with why, without asking the store, until [Allocator.Release]. IDs in memory are issued
// regardless; [Allocator.Discard] ends that. A load that the store is working on may still succeed.
func (a *Allocator) Hold(why error) { a.source.holdup.why.Store(&why) }

// Release ends [Allocator.Hold]. Waiting requests are loaded for within their retry pause.
func (a *Allocator) Release() {
	a.source.holdup.why.Store(nil)
	a.source.health.release()
}

// TurnAway refuses each request that memory cannot serve with [ErrElsewhere], those that wait included, until
// [Allocator.Admit]: another worker can load, and this one cannot. IDs in memory are issued as before.
func (a *Allocator) TurnAway() {
	a.source.elsewhere.Store(true)
	for _, b := range a.tags.snapshot() {
		b.turnAway()
	}
}

// Admit ends [Allocator.TurnAway].
func (a *Allocator) Admit() { a.source.elsewhere.Store(false) }

// Discard turns all IDs in memory into holes.
//
// Law: no request that begins after Discard has returned gets an ID of a load that began before. Floors stay.
func (a *Allocator) Discard() {
	for _, b := range a.tags.snapshot() {
		b.discard()
	}
}

// Floors returns the floor of each tag that this process ever loaded or remembers, those of dropped tags included.
func (a *Allocator) Floors() map[string]Floor {
	buffers := a.tags.snapshot() // first: a buffer that is removed meanwhile leaves its floor to the names
	floors := a.tags.names.allFloors()
	for _, b := range buffers {
		if f := b.floor(); f.End > floors[b.tag].End {
			floors[b.tag] = f
		}
	}
	return floors
}

// Remember takes over floors of an earlier life of this process. Loads begin at or above them. Call it before the first
// request.
func (a *Allocator) Remember(floors map[string]Floor) {
	a.tags.names.remember(floors)
}

// Forgot reports whether Floors lacks a tag: more were deleted than this process remembers, or than an earlier life
// did. Then its floors alone do not show how far it had loaded.
func (a *Allocator) Forgot() bool { return a.tags.names.hasForgotten() }

// turnAway refuses the requests that wait. It starts no load.
func (b *buffer) turnAway() {
	b.mu.Lock()
	answers := b.supply.waiters.refuse(&b.supply.stock, ErrElsewhere)
	if len(answers) > 0 {
		b.supply.settle(b.deps.clock.now())
	}
	b.mu.Unlock()
	deliver(answers)
}

// discard is [Allocator.Discard] of one tag. A load under way does not know yet, and is discarded when it arrives.
func (b *buffer) discard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.discards++
	b.lost(b.supply.stock.discard(b.deps.clock.now()))
	b.supply.settle(b.deps.clock.now())
}

// floor returns what the tag's loads say. A tag that was stopped has no buffer any more; one that was closed with its
// allocator still has.
func (b *buffer) floor() Floor {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.floorLocked()
}

func (b *buffer) floorLocked() Floor {
	return Floor{End: b.supply.stock.floor, Step: b.supply.pace.configured, Live: true}
}
