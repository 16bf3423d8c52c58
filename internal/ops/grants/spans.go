package grants

import (
	"cmp"
	"slices"
)

// A Span is the IDs from Span[0] up to, and without, Span[1].
type Span [2]int64

// spans are disjoint spans of IDs in rising order, neither empty nor adjacent.
type spans []Span

// add adds the span n, and returns the parts of n that s had before.
func (s *spans) add(n Span) (again []Span) {
	if n[0] >= n[1] {
		return nil
	}
	i := s.reaching(n[0])
	end, all := i, n
	for ; end < len(*s) && (*s)[end][0] <= n[1]; end++ {
		o := (*s)[end]
		if both := (Span{max(o[0], n[0]), min(o[1], n[1])}); both[0] < both[1] {
			again = append(again, both)
		}
		all = Span{min(all[0], o[0]), max(all[1], o[1])}
	}
	*s = slices.Replace(*s, i, end, all)
	return again
}

// reaching returns the index of the first span that ends at an ID or above it.
func (s spans) reaching(id int64) int {
	i, _ := slices.BinarySearchFunc(s, id, func(o Span, id int64) int { return cmp.Compare(o[1], id) })
	return i
}

// gaps returns the parts of a span that are not in s.
func (s spans) gaps(of Span) (all []Span) {
	for _, o := range s[s.reaching(of[0]):] {
		if o[0] >= of[1] {
			break
		}
		if of[0] < o[0] {
			all = append(all, Span{of[0], o[0]})
		}
		of[0] = max(of[0], o[1])
	}
	if of[0] < of[1] {
		all = append(all, of)
	}
	return all
}
