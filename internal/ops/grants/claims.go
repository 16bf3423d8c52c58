package grants

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/natsid/natsid/workerid"
)

// A Claim is the time for which one process had a worker number. All windows of a claim begin at the same time; each
// replaces the one before.
type Claim struct {
	Who
	workerid.Window           // the latest window, with the How of the first
	First           uint64    // sequence of its first entry
	Stored          time.Time // when its first entry was stored
	last            uint64    // sequence of its last entry
	closed          bool      // Until is the end of the last ID's tick
}

// claim adds a window to its claim, or begins a claim with it.
func (h *History) claim(e *Entry, w workerid.Window) {
	i := slices.IndexFunc(h.claims, func(o *Claim) bool {
		return o.Process == e.Process && o.Number == w.Number && o.From == w.From
	})
	if i < 0 {
		i = len(h.claims)
		h.claims = append(h.claims, &Claim{Who: e.Who, Window: w, First: e.Sequence, Stored: e.Stored})
	}
	c := h.claims[i]
	c.last = e.Sequence
	switch {
	case w.How == workerid.Closed:
		c.Until, c.closed = w.Until, true
	case !c.closed:
		c.Until = max(c.Until, w.Until)
	}
}

// isSame reports whether two claims can give equal IDs: they have the same worker number, layout, epoch and unit. Their
// registries do not matter.
func (c *Claim) isSame(o *Claim) bool {
	return c.Number == o.Number && c.Layout == o.Layout && c.Epoch == o.Epoch && c.Unit == o.Unit
}

// Claims returns all claims, in the order of their first entries. If the worker's next process resumed a claim, the
// claim ends there.
//
// Law: the resumed claim begins at the worker's fence, and the process before issued only below it, if it was dead. If
// it wrote a window of its claim after the resume, it was not dead.
func (h *History) Claims() []*Claim {
	for _, next := range h.claims {
		for _, o := range h.claims {
			if next.How == workerid.Resumed && o.isSame(next) &&
				o.Instance == next.Instance && o.Process != next.Process && !o.closed &&
				o.last < next.First && o.From <= next.From {
				o.Until = min(o.Until, next.From)
			}
		}
	}
	return h.claims
}

// judgeClaims returns a finding for every two claims of different processes that share times, and the number of worker
// numbers.
//
// A process that died while it stopped may have released its number without a record of that. Then it is not known
// whether the process still had the times that another process was given.
func (h *History) judgeClaims() (all []Finding, numbers int) {
	sorted := slices.SortedStableFunc(slices.Values(h.Claims()), func(a, b *Claim) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.From, b.From))
	})
	for i, a := range sorted {
		if i == 0 || sorted[i-1].Number != a.Number {
			numbers++
		}
		for _, b := range sorted[i+1:] {
			until := min(a.Until, b.Until)
			if b.Number != a.Number || b.From >= a.Until {
				break
			}
			if !a.isSame(b) || a.Process == b.Process || b.From >= until {
				continue
			}
			f := Finding{Repeated, fmt.Sprintf("worker number %d", a.Number), b.From, until - 1,
				fmt.Sprintf("%v, and %v", a, b)}
			if !a.closed && h.lives[a.Process].last.Sequence < b.First {
				f.Verdict = NotProven
				f.Message += fmt.Sprintf(": process %s may have died while it released the number", a.Process)
			}
			all = append(all, f)
		}
	}
	return all, numbers
}

// String returns the process and the times of a claim, for people.
func (c *Claim) String() string {
	const form = "2006-01-02T15:04:05.000Z"
	return fmt.Sprintf("worker %s, process %s, had it from %s to %s", c.Instance, c.Process,
		time.UnixMilli(c.From).UTC().Format(form), time.UnixMilli(c.Until).UTC().Format(form))
}
