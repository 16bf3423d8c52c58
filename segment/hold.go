package segment

// Hold makes every load fail with the error why, without a call to the store, until [Allocator.Release]. IDs in memory
// are still issued, unless [Allocator.Discard] is called. A load that the store has already received may still succeed.
func (a *Allocator) Hold(why error) { a.source.holdup.why.Store(&why) }

// Release ends [Allocator.Hold]. Loads for waiting requests start within their retry pause.
func (a *Allocator) Release() {
	a.source.holdup.why.Store(nil)
	a.source.health.release()
}

// TurnAway refuses each request that memory cannot serve, until [Allocator.Admit], with [ErrElsewhere]: another worker
// may be able to load. If waiting is true, it also refuses parked requests, though the load under way might still serve
// them.
func (a *Allocator) TurnAway(waiting bool) {
	a.source.elsewhere.Store(true)
	if !waiting {
		return
	}
	for _, b := range a.tags.snapshot() {
		b.turnAway()
	}
}

// Admit ends [Allocator.TurnAway].
func (a *Allocator) Admit() { a.source.elsewhere.Store(false) }

// Discard turns all IDs in memory into holes.
//
// Law: no request that begins after Discard has returned gets an ID of a load that began before.
func (a *Allocator) Discard() {
	for _, b := range a.tags.snapshot() {
		b.discard()
	}
}

// Floors returns the [Floor] of each tag, in memory or not: how far this process has loaded the tag, or an earlier one
// of this worker that [Allocator.Remember] named.
func (a *Allocator) Floors() map[string]Floor {
	buffers := a.tags.snapshot() // read first: a buffer that is removed in between leaves its floor to the names
	floors := a.tags.names.allFloors()
	for _, b := range buffers {
		if f, known := b.floor(), floors[b.tag]; f.End > known.End {
			floors[b.tag] = f.with(known)
		}
	}
	return floors
}

// Remember takes over floors of an earlier process of this worker. Loads begin at or above them. Call it before the
// first request.
func (a *Allocator) Remember(floors map[string]Floor) {
	for tag, f := range floors {
		a.tags.names.keepFloor(tag, f)
	}
}

// turnAway refuses the waiting requests. It starts no load.
func (b *buffer) turnAway() {
	b.mu.Lock()
	answers := b.supply.waiters.refuse(&b.supply.stock, ErrElsewhere)
	if len(answers) > 0 {
		b.supply.settle(b.set.clock.now())
	}
	b.mu.Unlock()
	deliver(answers)
}

// discard is [Allocator.Discard] of one tag. A load under way is discarded when it ends.
func (b *buffer) discard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.discards++
	b.supply.stock.discard(b.set.clock.now())
	b.supply.settle(b.set.clock.now())
}

// floor returns the floor of the tag: how far this process has loaded it. It may be called once the allocator is
// closed.
func (b *buffer) floor() Floor {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.supply.floor()
}
