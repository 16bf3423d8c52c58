package segment

import "sync/atomic"

// A run is the unused part of a tag's current range while no request waits. Requests take IDs from it without a lock
// and without allocating.
//
// Law: next only rises, by single atomic operations, and each ID that it passes belongs to the caller whose operation
// passed it, and to no other. To shut a run is to take all its unused IDs, so it needs no second state that a taker
// could miss: a request that still holds a run that was shut finds it used up. A run is never filled again; the IDs
// taken back continue in another one. So every loaded ID is at any time in one place: issued, at next or above in the
// one open run, or in the rest of the stock, which the buffer's lock guards.
//
// The next run holds only higher IDs and is opened after this one was used up or shut: a request that begins after
// another has ended gets higher IDs than the other.
type run struct {
	end int64 // the first ID above the run
	// A request that takes the ID check, or a later ID, calls buffer.look. check is never beyond the last ID, so the
	// end of the run is always noticed. It is 0 until the buffer sets it: then every request calls look.
	check atomic.Int64

	// Requests write next all the time. This padding keeps it on another cache line than end and check, which readers
	// then need not fetch again. No padding follows next: it may share a line with another tag, and 48 more bytes per
	// tag are many.
	_    [48]byte
	next atomic.Int64 // the next ID to issue; end once used up
}

func newRun(r Range) *run {
	open := &run{end: r.End}
	open.next.Store(r.Start)
	return open
}

// take takes the next n IDs, n at least 1, or none if fewer are left.
func (r *run) take(n int64) (Range, bool) {
	for {
		first := r.next.Load()
		if n > r.end-first {
			return Range{}, false
		}
		if r.next.CompareAndSwap(first, first+n) {
			return Range{first, first + n}, true
		}
	}
}

// shut takes all unused IDs.
func (r *run) shut() Range { return Range{r.next.Swap(r.end), r.end} }

// left returns the number of unused IDs. It may fall at any time.
func (r *run) left() int64 { return r.end - r.next.Load() }
