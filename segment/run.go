package segment

import "sync/atomic"

// A run is what is left of a tag's current range while nobody waits. IDs are
// taken from it without a lock and without allocating.
//
// Law: next only rises, by steps that are each one atomic operation, and each
// ID that it passes belongs to the caller whose operation passed it, nobody
// else. To shut a run is to take all that is left of it, so it needs no second
// state that a taker could miss: whoever still holds a run that was shut finds
// it used up. A run is never filled again; what was taken back goes on in
// another one. So every loaded ID is at any time in one place: given, ahead of
// next in the one open run, or in the buffer's rest, which its lock guards.
//
// The run that follows holds only higher IDs and is opened after this one was
// used up or shut: a request that begins after another has ended gets higher
// IDs than that one.
type run struct {
	end int64 // not in it
	// check is the ID from which on whoever takes one looks after the buffer:
	// the last ID at most, so that a run used up never goes unseen; 0, which is
	// at once, until the buffer says more.
	check atomic.Int64

	// Takers write next all the time; on another cache line that does not make
	// them fetch the rest again. There is no room after it: what may follow on its
	// line is another tag's, and 48 bytes a tag are many.
	_    [48]byte
	next atomic.Int64 // the next ID to give; end once used up
}

func newRun(r Range) *run {
	open := &run{end: r.End}
	open.next.Store(r.Start)
	return open
}

// take takes the next n IDs, n at least 1, or none if there are not so many.
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

// shut takes whatever is left.
func (r *run) shut() Range { return Range{r.next.Swap(r.end), r.end} }

// left returns how many IDs there are. Takers may make them fewer at any time.
func (r *run) left() int64 { return r.end - r.next.Load() }
