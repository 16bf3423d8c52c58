package grants

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/natsid/natsid/workerid"
)

// claim adds a window to its claim, or begins a claim with it. If the worker's next process resumes a claim, the claim
// ends there.
//
// Law: the resumed claim begins at the worker's fence, and the process before issued only below it, if it was dead. If
// it writes a window of its claim after the resume, it was not dead, and its claim reaches to the end of that window.
func (h *History) claim(who Who, w workerid.Window) {
	i := slices.IndexFunc(h.Claims, func(o *Grant) bool {
		return o.Process == who.Process && o.Number == w.Number && o.From == w.From
	})
	if i < 0 {
		i = len(h.Claims)
		c := &Grant{Who: who, Window: &w}
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
func (c *Grant) isSame(o *Grant) bool {
	return c.Number == o.Number && c.Layout == o.Layout && c.Epoch == o.Epoch && c.Unit == o.Unit
}

// judgeClaims returns a finding for every two claims of different processes that share times.
//
// A process that died while it stopped may have released its number without a record of that. Then it is not known
// whether the process still had the times that another process was given.
func (h *History) judgeClaims() (all []Finding) {
	sorted := slices.SortedStableFunc(slices.Values(h.Claims), func(a, b *Grant) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.From, b.From))
	})
	for i, a := range sorted {
		for _, b := range sorted[i+1:] {
			until := min(a.Until, b.Until)
			if b.Number != a.Number || b.From >= a.Until {
				break
			}
			if !a.isSame(b) || a.Process == b.Process || b.From >= until {
				continue
			}
			f := Finding{Repeated, fmt.Sprintf("worker number %d", a.Number), b.From, until - 1,
				fmt.Sprintf("worker %v, and worker %v, had it from %s to %s", a.Who, b.Who,
					time.UnixMilli(b.From).UTC().Format(time.RFC3339Nano),
					time.UnixMilli(until).UTC().Format(time.RFC3339Nano))}
			if !a.closed && h.last[a.Process].Entry < b.Entry {
				f.Verdict = NotProven
				f.Message += fmt.Sprintf(": process %s may have died while it released the number", a.Process)
			}
			all = append(all, f)
		}
	}
	return all
}
