package segment

import (
	"slices"
	"sync/atomic"
	"time"
)

// A stock is the loaded ranges of one tag: the unused part of the current range, and the ranges after it. The
// buffer's lock guards it.
//
// It is open or shut. While it is open, the unused part of the current range is in a run, from which requests take
// IDs without the lock. While it is shut all unused IDs are in rest.
//
// Law: each loaded ID is at any time in one place: issued, ahead of next in the one open run, or in rest.
type stock struct {
	run atomic.Pointer[run] // nil while shut; read without the lock

	rest    []Range       // loaded and not in the open run, in order, none empty
	restLen int64         // IDs in rest
	first   int64         // the current range was loaded as [first, first+size):
	size    int64         // the open run, or else rest[0], is its unused part
	began   time.Duration // when the current range began to be used
	ended   int64         // IDs of ranges used up since the last call of usedUp
	loaded  int64         // IDs ever loaded, less those discarded
	floor   int64         // the highest end ever loaded, or least if that is higher
	least   int64         // no ID below it may be issued; it only rises
	sealed  bool          // the tag is strict: the stock is never opened, and serves only requests that joined a load
}

// open moves the unused part of the current range into a run, from which requests take IDs without the lock. It does
// nothing if the stock is open or empty, or sealed: that of a strict tag.
func (s *stock) open() {
	if s.run.Load() != nil || len(s.rest) == 0 || s.sealed {
		return
	}
	r := s.rest[0]
	s.rest = slices.Delete(s.rest, 0, 1)
	s.restLen -= r.Len()
	s.run.Store(newRun(r))
}

// shut takes back the unused IDs of the open run, if there is one.
func (s *stock) shut() {
	r := s.run.Load()
	if r == nil {
		return
	}
	s.run.Store(nil)
	left := r.shut()
	if left.Len() == 0 {
		s.end()
		return
	}
	s.rest = slices.Insert(s.rest, 0, left)
	s.restLen += left.Len()
}

func (s *stock) shutIfUsedUp() {
	if r := s.run.Load(); r != nil && r.left() == 0 {
		s.shut()
	}
}

// take moves n IDs from rest, which must have as many, to dst. The stock must be shut.
func (s *stock) take(n int64, dst []Range) []Range {
	s.restLen -= n
	for n > 0 {
		cur := &s.rest[0]
		part := Range{cur.Start, cur.Start + min(n, cur.Len())}
		dst = append(dst, part)
		n -= part.Len()
		if cur.Start = part.End; cur.Len() == 0 {
			s.rest = slices.Delete(s.rest, 0, 1)
			s.end()
		}
	}
	return dst
}

// end records that the current range is used up: the next range becomes the current one.
func (s *stock) end() {
	s.ended += s.size
	s.beginFirst()
}

// beginFirst makes rest[0], if there is one, the current range.
func (s *stock) beginFirst() {
	s.first, s.size = 0, 0
	if len(s.rest) > 0 {
		s.first, s.size = s.rest[0].Start, s.rest[0].Len()
	}
}

// usedUp returns how long the ranges lasted that were used up since the last call of usedUp; zero if none was. Ranges
// that one request used up together count as one.
func (s *stock) usedUp(now time.Duration) (u usage) {
	if s.ended > 0 {
		u = usage{s.ended, now - s.began}
		s.began, s.ended = now, 0
	}
	return u
}

// add adds a loaded range without its IDs below least, which are a hole.
func (s *stock) add(r Range, now time.Duration) {
	s.floor = max(s.floor, r.End) //mutant:floor
	//mutant:least
	if r.Start = max(r.Start, s.least); r.Len() <= 0 {
		return
	}
	if s.size == 0 {
		s.first, s.size, s.began = r.Start, r.Len(), now
	}
	s.rest = append(s.rest, r)
	s.restLen += r.Len()
	s.loaded += r.Len()
}

// drop discards the loaded IDs below least. It first takes back the unused IDs of the open run.
//
// Law: no request that begins after drop has returned gets an ID below least. A load under way may bring lower IDs,
// which are discarded when they arrive: least only rises.
//
// The discarded IDs are holes. They count neither as issued nor as requested, so they do not change the speed.
func (s *stock) drop(least int64, now time.Duration) {
	if least <= s.least {
		return
	}
	s.least, s.floor = least, max(s.floor, least) //mutant:least-floor
	s.cut(least, now)
}

// cut discards the IDs in memory below least, and reports whether there were any. Unlike drop, it allows a later load
// to bring such IDs again.
func (s *stock) cut(least int64, now time.Duration) bool {
	if !s.isBelow(least) {
		return false
	}
	s.shut()
	before := s.restLen
	for len(s.rest) > 0 && s.rest[0].Start < least {
		cut := Range{s.rest[0].Start, min(s.rest[0].End, least)}
		s.rest[0].Start = cut.End
		s.restLen -= cut.Len()
		if s.rest[0].Len() == 0 {
			s.rest = slices.Delete(s.rest, 0, 1)
		}
	}
	dropped := before - s.restLen
	if dropped > 0 {
		s.loaded -= dropped
		s.began = now
		s.beginFirst()
	}
	return dropped > 0
}

// keep turns all loaded IDs but the first n into holes, and reports whether there were any.
func (s *stock) keep(n int64) bool {
	if s.held() <= n {
		return false
	}
	s.shut()
	for s.restLen > n {
		last := &s.rest[len(s.rest)-1]
		cut := Range{max(last.Start, last.End-(s.restLen-n)), last.End}
		last.End = cut.Start
		s.restLen -= cut.Len()
		s.loaded -= cut.Len()
		if last.Len() == 0 {
			s.rest = s.rest[:len(s.rest)-1]
		}
	}
	s.beginFirst()
	return true
}

// isBelow reports whether the stock may hold an ID below the parameter least.
func (s *stock) isBelow(least int64) bool {
	if r := s.run.Load(); r != nil {
		return r.next.Load() < least
	}
	return len(s.rest) > 0 && s.rest[0].Start < least
}

// discard turns all IDs in memory into holes. They count as never loaded, so the speed does not change.
//
// Law: IDs that requests have taken from the open run are not among the holes, and no request takes from the run
// afterwards.
func (s *stock) discard(now time.Duration) {
	s.shut()
	s.loaded -= s.restLen
	s.rest, s.restLen, s.began = nil, 0, now
	s.beginFirst()
}

// held returns how many IDs are in memory. While the stock is open the number may fall at any time.
func (s *stock) held() int64 {
	if r := s.run.Load(); r != nil {
		return s.restLen + r.left()
	}
	return s.restLen
}

// issued returns how many IDs were ever issued.
func (s *stock) issued() int64 { return s.loaded - s.held() }

// lastRangeBegun reports whether a tenth of the current range is used and no range follows it: Leaf's rule for the next
// load. held is the number of IDs in memory. The stock must be open or empty: while it is shut, rest[0] is part of the
// current range.
func (s *stock) lastRangeBegun(held int64) bool {
	return len(s.rest) == 0 && held <= s.size-s.size/10
}

// dueFrom returns the ID of the open run r from which a load is due: because a tenth of the last range is used (see
// lastRangeBegun), or because fewer than low IDs are left.
func (s *stock) dueFrom(r *run, low int64) int64 {
	from := r.end
	if len(s.rest) == 0 {
		from = s.first + max(0, s.size/10-1)
	}
	if low > s.restLen {
		from = min(from, r.end-(low-s.restLen))
	}
	return from
}

// ranges returns the ranges in memory, in the order of their use.
func (s *stock) ranges() []RangeStats {
	ranges := make([]RangeStats, 0, 1+len(s.rest))
	if r := s.run.Load(); r != nil {
		ranges = append(ranges, RangeStats{Next: r.next.Load(), Last: r.end - 1})
	}
	for _, r := range s.rest {
		ranges = append(ranges, RangeStats{First: r.Start, Next: r.Start, Last: r.End - 1})
	}
	if len(ranges) > 0 {
		ranges[0].First, ranges[0].Current = s.first, true
	}
	return ranges
}

// A run is the unused part of a tag's current range while no request waits. Requests take IDs from it without a lock
// and without allocating.
//
// Law: next only rises, by single atomic operations, and each ID that next passes belongs to the caller whose operation
// passed it, and to no other. To shut a run is to take all its unused IDs: a request that still uses a run that was
// shut finds it used up. A run is never filled again; the IDs taken back continue in another run. So every loaded ID is
// at any time in one place: issued, at next or above in the one open run, or in the rest of the stock, which the
// buffer's lock guards.
//
// The next run holds only higher IDs and is opened after this one was used up or shut. So a request that begins after
// another has ended gets higher IDs.
type run struct {
	end int64 // the first ID above the run
	// A request that takes the ID check, or a later ID, calls buffer.look, which starts a load if one is due. check is
	// at most the last ID of the run. While check is 0, which it is until the buffer sets it, every request calls look.
	check atomic.Int64

	// Each request writes next. The padding keeps next on another cache line than end and check, which requests only
	// read. No padding follows next, to save 48 bytes per tag: next may share a line with another tag.
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

// shut takes all unused IDs, so that requests find the run used up, and returns them.
func (r *run) shut() Range { return Range{r.next.Swap(r.end), r.end} }

// left returns the number of unused IDs. It may fall at any time.
func (r *run) left() int64 { return r.end - r.next.Load() }
