package grants

import "time"

// moment is the longest time from a write of a mark to its record in the stream, unless the entry is Late.
const moment = 10 * time.Second

// A life is what the stream shows of one process.
type life struct {
	first, last *Entry    // entries without their grants
	until       time.Time // end of its latest window
}

// live records that a process wrote an entry, and returns the entry without its grants.
func (h *History) live(e *Entry) *Entry {
	brief := &Entry{Who: e.Who, N: e.N, Late: e.Late, End: e.End, Sequence: e.Sequence, Stored: e.Stored}
	if h.lives == nil {
		h.lives, h.began = make(map[string]*life), e.Stored
	}
	l := h.lives[e.Process]
	if l == nil {
		l = &life{first: brief}
		h.lives[e.Process] = l
	}
	l.last, h.now = brief, e.Stored
	h.silent = max(h.silent, time.Hour)
	for _, w := range e.Windows {
		if until := time.UnixMilli(w.Until); until.After(l.until) {
			l.until, h.silent = until, max(h.silent, until.Sub(e.Stored))
		}
	}
	return brief
}

// loser returns the only process that can have loaded the IDs in a gap, if it is dead; nil if several processes can.
// The loads in a gap were written after that of its low neighbour, and before that of its high neighbour; without a
// high neighbour, at the latest when the mark was written.
//
// Law: entries of a process are numbered, so an entry proves that none before it is missing. So an unrecorded load in
// the gap is of a process that has written no entry since, and had neither stopped nor died before. If the first
// entries of the stream are gone, all entries of such a process may be among them; but it writes one within the length
// of a window. A process that was killed before its first entry, within about a second of its start, is not known.
func (h *History) loser(gap held, written time.Time) (only *life) {
	if !h.Whole && (gap.low == nil || gap.low.Stored.Sub(h.began) < h.silent) {
		return nil
	}
	if gap.high != nil {
		written = gap.high.Stored
	}
	for _, l := range h.lives {
		switch hasMore := !l.last.Late && l.last.Stored.Sub(written) > moment; {
		case l.last.End, hasMore, gap.high != nil && gap.high.Process == l.last.Process:
			continue
		case gap.low != nil && h.isDead(l, gap.low):
			continue
		case only != nil:
			return nil
		}
		only = l
	}
	if only == nil || !h.isDead(only, nil) {
		return nil
	}
	return only
}

// isDead reports whether a process was dead before the grants in the entry by; nil means now. It was dead if a later
// process has its name, since a data directory serves one process at a time, or if it has been silent since the end of
// its window.
func (h *History) isDead(l *life, by *Entry) bool {
	for _, next := range h.lives {
		if next.last.Instance == l.last.Instance && next.first.Sequence > l.last.Sequence && (by == nil ||
			next.last.Process == by.Process || !by.Late && by.Stored.Sub(next.first.Stored) > moment) {
			return true
		}
	}
	if by == nil {
		return !l.until.IsZero() && h.now.After(l.until)
	}
	return !l.until.IsZero() && !by.Late && by.Stored.Sub(l.until) > h.silent
}
