package segment

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Stats is what an allocator can tell of all its tags together.
type Stats struct {
	Tags    int // in memory
	Waiting int // parked requests
	// SecondsLeft is how long the tag that runs out first lasts at its present
	// speed if no load succeeds any more; +Inf if none is in use.
	SecondsLeft float64
}

// Stats returns the figures of this moment. It looks at every tag, at one
// after the other.
func (a *Allocator) Stats() Stats {
	s := Stats{SecondsLeft: math.Inf(1)}
	for b := range a.tags.all {
		waiting, left := b.gist()
		s.Tags++
		s.Waiting += waiting
		s.SecondsLeft = min(s.SecondsLeft, left)
	}
	return s
}

// TagStats is what an allocator can tell of one tag. Times are as long as the
// tag has been in its memory at most.
type TagStats struct {
	Tag string
	// Ranges are those in memory in the order of their use. The first is the
	// current one, whose beginning is used already.
	Ranges []RangeStats
	Left   int64 // IDs in memory
	// Speed is how many IDs a second are asked for at present, and SecondsLeft
	// how long Left lasts at it: as long as the store may be away. +Inf if
	// nobody asks.
	Speed, SecondsLeft float64
	// Configured is the tag's own step as of the last load, Step that of the
	// next load; both are 0 before the first.
	Configured, Step int64
	// Recommended is the step at which a range lasts 10 min at the highest
	// speed over a second or more that was seen; 0 if none was.
	Recommended int64
	Peak        float64 // that speed, IDs/s
	// Lasted is how long the last range lasted that was used up; 0 if none was.
	Lasted   time.Duration
	Loads    int64         // that succeeded
	LoadTime time.Duration // of the last one of them, with the wait for its turn
	Errors   int64         // loads that failed
	// LastError is why the last load failed, nil if it succeeded or the store
	// refused the tag.
	LastError error
	Waits     int64 // requests that had to wait for a load
	Waiting   int   // those that wait now
}

// RangeStats is one range in memory: it was loaded as [First, Last], and Next
// is the next ID to give.
type RangeStats struct {
	First, Next, Last int64
	Current           bool
}

// recommendedSpan is how long a range should last at the peak: then the store
// can be away for 10 to 20 minutes.
const recommendedSpan = 600

// StatsOf returns the figures of a tag, and reports whether it is in memory.
// It takes the tag's lock for less than a microsecond.
func (a *Allocator) StatsOf(tag string) (TagStats, bool) {
	b := a.tags.get(tag)
	if b == nil {
		return TagStats{}, false
	}
	return b.stats(), true
}

// StatsAfter returns the figures of at most limit tags in memory whose names
// are above after, in the order of names, byte by byte. It looks at the name of
// every tag, and takes the lock of those it returns.
func (a *Allocator) StatsAfter(after string, limit int) []TagStats {
	var page []TagStats
	for _, b := range a.firstAfter(after, limit) {
		page = append(page, b.stats())
	}
	return page
}

// firstAfter returns the first limit buffers above after. It sorts what it has
// whenever that is twice as much, and keeps half: so a page costs one look at
// every name, whatever the page.
func (a *Allocator) firstAfter(after string, limit int) []*buffer {
	var page []*buffer
	keep := func() {
		slices.SortFunc(page, func(x, y *buffer) int { return strings.Compare(x.tag, y.tag) })
		page = page[:min(len(page), max(limit, 0))]
	}
	bound := "" // no name above it can be on the page; "" for none
	for b := range a.tags.all {
		if b.tag <= after || bound != "" && b.tag > bound {
			continue
		}
		if page = append(page, b); len(page)/2 >= limit && limit > 0 {
			keep()
			bound = page[len(page)-1].tag
		}
	}
	keep()
	return page
}

// gist returns what the totals need.
func (b *buffer) gist() (waiting int, secondsLeft float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queue.len(), lasts(b.heldLocked(), b.speed.at(b.a.now(), b.askedLocked()))
}

func lasts(ids int64, speed float64) float64 {
	if speed <= 0 {
		return math.Inf(1)
	}
	return float64(ids) / speed
}

func (b *buffer) stats() TagStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.a.now()
	s := TagStats{
		Tag: b.tag, Ranges: b.rangesLocked(), Left: b.heldLocked(), Speed: b.speed.at(now, b.askedLocked()),
		Configured: b.configured, Step: b.step, Peak: b.speed.peak, Recommended: count(math.Ceil(recommendedSpan * b.speed.peak)),
		Lasted: b.last.lasted, Loads: b.loads, LoadTime: b.took, Errors: b.errs, LastError: b.lastErr,
		Waits: b.waits, Waiting: b.queue.len(),
	}
	s.SecondsLeft = lasts(s.Left, s.Speed)
	return s
}

func (b *buffer) rangesLocked() []RangeStats {
	ranges := make([]RangeStats, 0, 1+len(b.rest))
	if r := b.open.Load(); r != nil {
		ranges = append(ranges, RangeStats{Next: r.next.Load(), Last: r.end - 1})
	}
	for _, r := range b.rest {
		ranges = append(ranges, RangeStats{First: r.Start, Next: r.Start, Last: r.End - 1})
	}
	if len(ranges) > 0 {
		ranges[0].First, ranges[0].Current = b.first, true
	}
	return ranges
}
