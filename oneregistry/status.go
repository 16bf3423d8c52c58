package oneregistry

import (
	"cmp"
	"slices"
)

// Status describes what a watch knows.
type Status struct {
	Own     Notice
	Others  []Notice // heard lately
	Refused Refused
}

// Status returns what the watch knows.
func (w *Watch) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Status{Own: w.own, Refused: w.refused}
	for _, o := range w.others {
		s.Others = append(s.Others, o.notice)
	}
	slices.SortFunc(s.Others, func(a, b Notice) int { return cmp.Compare(a.ID, b.ID) })
	return s
}

// Second reports whether there is a second registry, or this one has yielded to it.
func (w *Watch) Second() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.others) > 0 || w.verdict.Yields != ""
}
