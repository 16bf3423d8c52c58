package attempt

import (
	"sync"
	"time"

	"github.com/natsid/natsid/segment"
)

// A Load is a range, and the attempt that reserves it by raising the mark from Start or below to End.
type Load struct {
	segment.Range
	Attempt
	// Write is that attempt, for provenance. The caller sets Written once the write is acknowledged.
	Write segment.Write
	again bool  // the write was sent before
	most  int64 // IDs that the tag's next range may have; 0 for any number
	kept  int64 // IDs of it that were reserved before: they are lost if its write is refused
}

// Again reports whether the write was sent before.
func (l Load) Again() bool { return l.again }

// A View is what a load has just read of a tag, and what it needs.
type View struct {
	Revision uint64
	Written  time.Time // when the entry was
	Tokens   Tokens
	Mark     int64
	Lowest   int64 // no ID below it may be used: the highest of floor, least, and a guarded row's max_id and seen
	Limit    int64 // no range may end above it
	Strict   bool  // what was reserved before is no answer: see [segment.Store.LoadStrict]
}

// Ranges keeps, for each tag, the range that the last load reserved, or may have reserved, and that no request got. The
// zero value is empty and ready to use. It is safe for concurrent use.
//
// Holes are bounded by it: however long loads fail, they cost no more than was asked for at once.
//
//   - A range whose write was acknowledged, or whose token a later read shows, is used by the next load, however many
//     IDs that asks for: what is missing is loaded after it. A write that has not landed yet is sent once more, as it
//     was. Neither moves the mark any further.
//   - Where a range is lost, since too many others wrote meanwhile, or it may be Leaf's, or no answer to strict
//     requests, the tag's next range has at most half as many IDs, until a load succeeds: 1/2 + 1/4 + … of what was
//     asked for at once.
//
// Law: a range is returned as reserved only if its attempt has [Landed], the mark just read is not below its end, and
// nothing of it is below View.Lowest. Any other range begins at the mark just read or above, and is reserved only when
// a compare-and-set from the revision just read was acknowledged.
//
// Law of strict views: no range is reserved without another compare-and-set from the revision just read. A kept range
// is part of the next one only if its own write is the last that the entry had, so that nobody loaded since; otherwise
// it is a hole. A write that is sent once more counts by its own acknowledgement.
type Ranges struct {
	mu    sync.Mutex
	loads map[string]Load // by tag
}

// Next returns the range for the next load of n IDs of a tag. Unless it is reserved already, the caller writes
// Load.End and Load.Tokens from the revision of v. It gives a load that fails back, by [Ranges.Refused] if that write
// was refused, and by [Ranges.Keep] after any other error: what became of it is decided when the entry is read again.
func (r *Ranges) Next(tag string, v View, n int64) (l Load, reserved bool, err error) {
	old := r.take(tag)
	outcome, fits := old.Outcome(v.Revision, v.Tokens), old.Start >= v.Lowest //mutant:fits
	mark, kept := v.Mark, int64(0)
	switch {
	case v.Strict && outcome == Landed: //mutant:strict-kept
		if fits && v.Mark == old.End && v.Tokens.newest() == old.token { //mutant:strict-last
			mark, kept = old.Start, old.Len()
			break
		}
		old.most = max(1, old.Len()/2)
	case outcome == Refused && old.kept > 0:
		old.most = max(1, old.kept/2)
	case outcome == Landed && fits && v.Mark >= old.End: //mutant:landed
		old.again = true // which revision it wrote is not known: another write may have kept its token
		return old, true, nil
	case outcome == Open && fits && old.Start >= v.Mark:
		old.again = true
		return old, false, nil
	case outcome != None && outcome != Refused: // a hole, or it may become one
		old.most = max(1, old.Len()/2) //mutant:halve
	}
	if old.most > 0 {
		n = min(n, old.most)
	}
	l = Load{Attempt: New(v.Revision, v.Tokens), most: old.most, kept: kept}
	l.Range, err = segment.NextRange(mark, v.Lowest, n, v.Limit) //mutant:next-range
	l.End = max(l.End, v.Mark)
	l.Write = segment.Write{
		How: segment.ByLoad, Before: v.Mark, After: l.End, Read: v.Revision, Replaced: v.Written,
	}
	return l, false, err
}

// maxKept bounds the tags of which something is kept; then any other one is forgotten, which costs a hole.
const maxKept = 100_000

// Keep keeps the range of a load that failed.
func (r *Ranges) Keep(tag string, l Load) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loads == nil {
		r.loads = make(map[string]Load)
	}
	for other := range r.loads {
		if len(r.loads) < maxKept {
			break
		}
		delete(r.loads, other)
	}
	r.loads[tag] = l //mutant:keep
}

// Refused takes back a load whose write was refused since another came first. That may have been the same write, sent
// before; then the range is kept. What was reserved before and went into the load is lost.
func (r *Ranges) Refused(tag string, l Load) {
	switch {
	case l.again:
		r.Keep(tag, l)
	case l.kept > 0:
		r.Keep(tag, Load{most: max(1, l.kept/2)}) //mutant:kept-lost
	case l.most > 0:
		r.Keep(tag, Load{most: l.most})
	}
}

// Drop forgets the range that is kept of a tag that was deleted: an old read, which shows the tag as it was before,
// must not bring it back without another write. It is lost.
func (r *Ranges) Drop(tag string) {
	l := r.take(tag)
	if l.Len() > 0 {
		l.most = max(1, l.Len()/2)
	}
	if l.most > 0 {
		r.Keep(tag, Load{most: l.most})
	}
}

// take removes and returns what is kept of a tag: no two loads get it.
func (r *Ranges) take(tag string) Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.loads[tag]
	delete(r.loads, tag) //mutant:kept-once
	return l
}
