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
	closed          bool      // Until is the end of the last ID's tick
}

// claim adds a window to its claim, or begins a claim with it. If the worker's next process resumes a claim, the claim
// ends there.
//
// Law: the resumed claim begins at the worker's fence, and the process before issued only below it, if it was dead. If
// it writes a window of its claim after the resume, it was not dead, and its claim reaches to the end of that window.
func (h *History) claim(e *Entry, w workerid.Window) {
	i := slices.IndexFunc(h.Claims, func(o *Claim) bool {
		return o.Process == e.Process && o.Number == w.Number && o.From == w.From
	})
	if i < 0 {
		i = len(h.Claims)
		c := &Claim{Who: e.Who, Window: w, First: e.Sequence, Stored: e.Stored}
		for _, o := range h.Claims {
			if w.How == workerid.Resumed && o.isSame(c) && o.Instance == c.Instance && !o.closed && o.From <= c.From {
				o.Until = min(o.Until, c.From)
			}
		}
		h.Claims = append(h.Claims, c)
	}
	c := h.Claims[i]
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

// judgeClaims returns a finding for every two claims of different processes that share times, and the number of worker
// numbers.
//
// A process that died while it stopped may have released its number without a record of that. Then it is not known
// whether the process still had the times that another process was given.
func (h *History) judgeClaims() (all []Finding, numbers int) {
	sorted := slices.SortedStableFunc(slices.Values(h.Claims), func(a, b *Claim) int {
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
			if !a.closed && h.latest[a.Process].Sequence < b.First {
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
