package grants

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Claim is the time that one process had under a worker number: the windows of a claim begin at the same time, and
// each replaces the one before.
type Claim struct {
	Who
	Window        // the latest, with How and Time of the first
	First  uint64 // its first entry
	last   uint64 // its last one
	closed bool   // Until is the end of the last ID's tick
}

// Claims are the claims on all worker numbers, in the order of their first entries.
type Claims struct {
	all     []*Claim
	entries map[string]uint64 // by process, its last entry
}

// Add takes in the windows of an entry.
func (c *Claims) Add(at At, e *Entry) {
	if c.entries == nil {
		c.entries = make(map[string]uint64)
	}
	c.entries[e.Process] = at.Sequence
	for _, w := range e.Windows {
		i := slices.IndexFunc(c.all, func(o *Claim) bool {
			return o.Process == e.Process && o.Number == w.Number && o.From == w.From
		})
		if i < 0 {
			i = len(c.all)
			c.all = append(c.all, &Claim{Who: e.Who, Window: w, First: at.Sequence})
		}
		claim := c.all[i]
		claim.last = at.Sequence
		switch {
		case w.How == Closed:
			claim.Until, claim.closed = w.Until, true
		case !claim.closed:
			claim.Until = max(claim.Until, w.Until)
		}
	}
}

// isSame reports whether two claims are on one number of one kind of snowflakes: others have other IDs.
func (c *Claim) isSame(o *Claim) bool {
	return c.Number == o.Number && c.Registry == o.Registry && c.Layout == o.Layout && c.Epoch == o.Epoch &&
		c.Unit == o.Unit
}

// Settle ends each claim where the worker's next process resumed it, and returns them all.
//
// Law: what a worker resumes begins at its fence, below which the process before, which is dead, stayed. One that wrote
// a window of that claim later was not dead.
func (c *Claims) Settle() []*Claim {
	for _, next := range c.all {
		if next.How != Resumed {
			continue
		}
		for _, o := range c.all {
			if o.isSame(next) && o.Instance == next.Instance && o.Process != next.Process && !o.closed &&
				o.last < next.First && o.From <= next.From {
				o.Until = min(o.Until, next.From)
			}
		}
	}
	return c.all
}

// judge finds claims of two processes that share times, and counts the numbers.
//
// A process that died while it stopped may have released its number without recording that: then it is not known
// whether it had the time that another one got.
func (c *Claims) judge() (all []Finding, numbers int) {
	sorted := slices.SortedStableFunc(slices.Values(c.Settle()), func(a, b *Claim) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.From, b.From))
	})
	seen := make(map[int]bool)
	for i, a := range sorted {
		seen[a.Number] = true
		for _, b := range sorted[i+1:] {
			until := min(a.Until, b.Until)
			if b.Number != a.Number || b.From >= a.Until {
				break
			}
			if !a.isSame(b) || a.Process == b.Process || b.From >= until {
				continue
			}
			f := Finding{What: fmt.Sprintf("worker number %d", a.Number), First: b.From, Last: until - 1,
				Repeated: true, Message: fmt.Sprintf("%v, and %v", a, b)}
			if !a.closed && c.entries[a.Process] < b.First {
				f.Repeated = false
				f.Message += fmt.Sprintf(": process %s may have died while it released the number", a.Process)
			}
			all = append(all, f)
		}
	}
	return all, len(seen)
}

// String names the process and the time.
func (c *Claim) String() string {
	const form = "2006-01-02 15:04:05.000"
	return fmt.Sprintf("worker %s, process %s, had it from %s to %s", c.Instance, c.Process,
		time.UnixMilli(c.From).UTC().Format(form), time.UnixMilli(c.Until).UTC().Format(form))
}
