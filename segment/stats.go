package segment

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Stats is what an allocator can tell of all its tags together: those in its
// memory, since they came there.
type Stats struct {
	Tags    int // in memory
	Waiting int // parked requests
	// Speed is how many IDs a second are asked for at present.
	Speed float64
	// SecondsLeft is how long the tag that runs out first lasts at its present
	// speed if no load succeeds any more; +Inf if none is in use.
	SecondsLeft float64
	Loads       int64 // that succeeded
	Errors      int64 // loads that failed
	Waits       int64 // requests that had to wait for a load
}

// Stats returns the figures of this moment. It looks at every tag, at one
// after the other, which takes about 0.25 us a tag.
func (a *Allocator) Stats() Stats {
	s, _ := a.Busiest(0)
	return s
}

// Busiest returns the figures of [Allocator.Stats], and those of the n tags
// that are asked for the most IDs a second at present, the busiest first. It
// takes no longer.
func (a *Allocator) Busiest(n int) (Stats, []TagStats) {
	s := Stats{SecondsLeft: math.Inf(1)}
	var top []candidate // in order, n at most
	for b := range a.tags.all {
		speed := b.addTo(&s)
		if len(top) < n || n > 0 && speed > top[n-1].speed {
			at, _ := slices.BinarySearchFunc(top, speed, func(c candidate, speed float64) int { return cmp.Compare(speed, c.speed) })
			top = slices.Insert(top[:min(len(top), n-1)], at, candidate{b, speed})
		}
	}
	busiest := make([]TagStats, len(top))
	for i, c := range top {
		busiest[i] = c.b.stats()
	}
	return s, busiest
}

// A candidate is a tag that may be among the busiest.
type candidate struct {
	b     *buffer
	speed float64
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

// addTo adds the tag's figures to the totals, and returns its speed.
func (b *buffer) addTo(s *Stats) (speed float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	speed = b.speed.at(b.a.now(), b.askedLocked())
	s.Tags++
	s.Waiting += b.queue.len()
	s.Speed += speed
	s.SecondsLeft = min(s.SecondsLeft, lasts(b.heldLocked(), speed))
	s.Loads, s.Errors, s.Waits = s.Loads+b.loads, s.Errors+b.errs, s.Waits+b.waits
	return speed
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
