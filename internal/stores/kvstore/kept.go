package kvstore

import (
	"crypto/rand"
	"encoding/base64"
	"sync"

	"github.com/natsid/natsid/segment"
)

// A reservation is a range, with the compare-and-set that reserves it: it raises the tag's mark (its next ID) to End
// from Start or less.
type reservation struct {
	segment.Range
	cas
	sentBefore bool   // the write was sent before
	acked      bool   // the write was acknowledged, or a later read has shown that it landed
	most       int64  // how many IDs the tag's next range may have; 0 for no bound
	kept       int64  // how many of the IDs are from an earlier range, and are lost if this write is refused
	era        string // in which the write was sent
}

// A view is the state of a tag that a load has just read, and the bounds of the range that the load may return.
type view struct {
	revision uint64
	token    string
	mark     int64
	lowest   int64  // no ID below it may be used: the highest of floor, Seen, Least and the bound of Rules.Window
	limit    int64  // no range may end above it
	strict   bool   // a range reserved earlier must not be used: see [segment.Store.LoadStrict]
	era      string // of the registry now; a range of another era must not be used
}

// A keeper keeps, for each tag, the range of the last load if that load failed although it had reserved the range, or
// may have reserved it. The zero value is empty and ready to use. A keeper is safe for concurrent use.
//
// A keeper bounds holes, IDs that are never issued: however long loads fail, the holes have no more IDs together than
// one load asked for.
//
//   - A range whose write was acknowledged, or whose token the next read shows, is used by the next load. If that load
//     asks for more IDs, a later load gets the rest. A write that has not landed yet is sent once more, unchanged.
//     Neither moves the mark any further.
//   - Where a range is lost, the tag's next range has at most half as many IDs, until a load succeeds: the losses sum
//     up to 1/2 + 1/4 + … of the IDs that one load asked for. A range is lost if another worker wrote after a write
//     whose outcome is unknown, if Leaf may have used the range, or if it cannot answer strict requests.
//
// Law: a range is returned as reserved only if its write has landed, the mark just read is at or above its end, and
// none of its IDs is below view.lowest. Any other range begins at the mark just read or above, and is reserved only
// when a compare-and-set from the revision just read was acknowledged.
//
// If fewer than n IDs are left for a strict load, the keeper returns an error, so nothing is written: IDs that a
// strict load reserves and gives to no request are a hole.
//
// Law of strict loads: each load reserves its range by a compare-and-set from the revision just read. A kept range is
// part of the next range only if the kept range's write was the last write of the entry, so that no other load came in
// between; otherwise the kept range is a hole. A write that is sent once more counts by its own acknowledgement.
type keeper struct {
	mu    sync.Mutex
	loads map[string]reservation // by tag
}

// next returns the range for the next load of n IDs of a tag. Unless reserved is true, the caller writes l.End as the
// mark, with l's token, by a compare-and-set on v.revision. If the load fails, the caller passes l to [keeper.lost] if
// that write was refused, and to [keeper.keep] after any other error. The next read of the entry decides whether the
// write landed.
func (r *keeper) next(tag string, v view, n int64) (l reservation, reserved bool, err error) {
	old := r.take(tag)
	outcome, fits := old.outcome(v.revision, v.token), old.Start >= v.lowest && old.era == v.era //mutant:fits
	isOurs := outcome == landed || old.acked                                                     //mutant:ours
	mark, kept := v.mark, int64(0)
	switch {
	case v.strict && outcome == landed && fits && v.mark == old.End: //mutant:strict-last
		mark, kept = old.Start, old.Len()
	case !v.strict && isOurs && fits && v.mark >= old.End: //mutant:landed
		old.sentBefore, old.acked = true, true
		return old, true, nil
	case outcome == open && fits && old.Start >= v.mark:
		old.sentBefore = true
		return old, false, nil
	case outcome != none: // the kept range is a hole, or may become one
		old.most = max(1, old.Len()/2) //mutant:halve
	}
	if old.most > 0 {
		n = min(n, old.most)
	}
	l = reservation{cas: newCAS(v.revision, v.token), most: old.most, kept: kept, era: v.era}
	l.Range, err = segment.NextRange(mark, v.lowest, n, v.limit) //mutant:next-range
	if err == nil && v.strict && l.Len() < n {
		err = &segment.ExhaustedError{Left: l.Len(), Why: segment.ErrExhausted}
	}
	if err != nil && old != (reservation{}) {
		r.keep(tag, old)
	}
	l.End = max(l.End, v.mark)
	return l, false, err
}

// maxKept bounds the number of tags for which a range of a failed load is kept. Further ranges are dropped: their IDs
// are never issued.
const maxKept = 100_000

func (r *keeper) keep(tag string, l reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loads == nil {
		r.loads = make(map[string]reservation)
	}
	for other := range r.loads {
		if len(r.loads) < maxKept {
			break
		}
		delete(r.loads, other)
	}
	r.loads[tag] = l //mutant:keep
}

// lost handles a reservation whose write was refused because another write came first. If the same write was sent
// before, that copy may have landed, and the range is kept. Otherwise the range is dropped, and only the bound on the
// length of the tag's next range is kept.
func (r *keeper) lost(tag string, l reservation) {
	switch {
	case l.sentBefore:
		r.keep(tag, l)
	case l.kept > 0:
		r.keep(tag, reservation{most: max(1, l.kept/2)}) //mutant:kept-lost
	case l.most > 0:
		r.keep(tag, reservation{most: l.most})
	}
}

// drop drops the kept range of a deleted tag; its IDs are never issued. Otherwise a load that reads an old entry, in
// which the tag is not deleted, could use the range without a write.
func (r *keeper) drop(tag string) {
	l := r.take(tag)
	if l.Len() > 0 {
		l.most = max(1, l.Len()/2)
	}
	if l.most > 0 {
		r.keep(tag, reservation{most: l.most})
	}
}

// take removes and returns the reservation that was kept for the tag's next load, so that only one load uses it.
func (r *keeper) take(tag string) reservation {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.loads[tag]
	delete(r.loads, tag) //mutant:kept-once
	return l
}

// newToken returns 66 random bits from the kernel: two clones of one machine must not draw the same.
func newToken() string {
	b := make([]byte, 9)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)[:11]
}

// A cas is a compare-and-set of an entry, on a revision that was read just before. It writes a random token into the
// entry, by which a later read recognizes it. An equal mark (next ID) in the entry would prove nothing: another worker
// that read the same revision with the same step writes the same mark. The zero value stands for no compare-and-set.
type cas struct {
	token  string
	base   uint64 // the revision that the write replaces
	before string // the token of the entry at base
}

func newCAS(base uint64, before string) cas { return cas{newToken(), base, before} }

// An outcome is what became of a compare-and-set, as a later read of the entry shows it.
type outcome int

const (
	none    outcome = iota // the cas is zero: nothing was sent
	landed                 // the write made the entry that was read
	open                   // the entry is still the one to be replaced: the write may land later, or never
	unknown                // another write has replaced the entry since
)

// outcome returns the outcome of the compare-and-set, given a later read of the entry.
//
// Law: landed means that of all writes on revision base this one succeeded, and no other. So the range that it reserved
// belongs to this process alone, as after an acknowledgement.
func (c cas) outcome(revision uint64, now string) outcome {
	switch {
	case c.token == "":
		return none
	case now == c.token:
		return landed
	case revision == c.base && now == c.before: // one write on base can land, so this one may be sent again
		return open
	}
	return unknown
}
