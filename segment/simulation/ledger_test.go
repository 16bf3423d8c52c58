package simulation_test

import (
	"slices"
	"time"

	"github.com/natsid/natsid/segment"
)

// A ledger is every ID of one tag that was issued, in any reply.
type ledger struct {
	spans []span // in order, disjoint
}

// A span is consecutive IDs that one owner issued.
type span struct {
	segment.Range
	by string
	at time.Duration
}

// add adds IDs. It returns a span that has one of them already, if there is one.
func (l *ledger) add(s span) (clash span, repeats bool) {
	i, _ := slices.BinarySearchFunc(l.spans, s.Start, func(have span, start int64) int {
		if have.End <= start {
			return -1
		}
		return 1
	})
	if i < len(l.spans) && l.spans[i].Start < s.End {
		return l.spans[i], true
	}
	if i > 0 && l.spans[i-1].End == s.Start && l.spans[i-1].by == s.by {
		l.spans[i-1].End = s.End
		return span{}, false
	}
	l.spans = slices.Insert(l.spans, i, s)
	return span{}, false
}
