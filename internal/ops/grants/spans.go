package grants

import (
	"cmp"
	"slices"
)

// A Span is the IDs from Span[0] up to, and without, Span[1].
type Span [2]int64

// A held is a span with two entries: low is the latest that grants its first ID, and high the earliest that grants its
// last. Of a gap, low grants the ID just below, and high the ID just above; nil if that ID is not granted.
type held struct {
	Span
	low, high *Entry
}

// spans are disjoint spans of IDs in rising order, neither empty nor adjacent.
type spans []held

// add adds the span n, which the entry by grants, and returns the parts of n that s had before.
func (s *spans) add(n Span, by *Entry) (again []Span) {
	if n[0] >= n[1] {
		return nil
	}
	i, _ := slices.BinarySearchFunc(*s, n[0], func(o held, from int64) int { return cmp.Compare(o.Span[1], from) })
	end, all := i, held{n, by, by}
	for ; end < len(*s) && (*s)[end].Span[0] <= n[1]; end++ {
		o := (*s)[end]
		if both := (Span{max(o.Span[0], n[0]), min(o.Span[1], n[1])}); both[0] < both[1] {
			again = append(again, both)
		}
		if o.Span[0] < n[0] {
			all.Span[0], all.low = o.Span[0], o.low
		}
		if o.Span[1] >= n[1] {
			all.Span[1], all.high = o.Span[1], o.high
		}
	}
	*s = slices.Replace(*s, i, end, all)
	return again
}

// gaps returns the parts of a span that are not in s.
func (s spans) gaps(of Span) (all []held) {
	var before *Entry
	for _, o := range s {
		if o.Span[0] >= of[1] {
			break
		}
		if of[0] < o.Span[0] {
			all = append(all, held{Span{of[0], o.Span[0]}, before, o.low})
		}
		of[0], before = max(of[0], o.Span[1]), o.high
	}
	if of[0] < of[1] {
		all = append(all, held{of, before, nil})
	}
	return all
}

// hasAny reports whether s has an ID of a span.
func (s spans) hasAny(of Span) bool {
	return slices.ContainsFunc(s, func(o held) bool { return o.Span[0] < of[1] && of[0] < o.Span[1] })
}

// end returns the end of the highest span, 0 if there is none.
func (s spans) end() int64 {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].Span[1]
}
