package grants

import "time"

// moment is how long after a write of a mark its record is in the stream, unless that entry is late.
const moment = 10 * time.Second

// A life is what the stream has of a process.
type life struct {
	first, last *Entry    // without their grants
	until       time.Time // of its latest window
}

// live takes in that a process wrote an entry, and returns the entry without its grants.
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

// loser returns the one process that can have loaded IDs in a gap, if it is dead; nil if there may be several. The
// gap's loads were written after that of its low neighbour, and before that of its high one or, without one, at the
// latest when the mark was written.
//
// Law: entries of a process are numbered, so that each proves all that was granted before. Only one that has none since
// the gap, and neither stopped nor died before it, can have loads there that are in no entry. Where the stream is cut,
// a process may have lived without an entry that is left: a window later, it would have one.
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

// isDead reports whether a process was dead before the grants of an entry, nil for now. It was if one of its name
// began after it, as one data directory serves one process, or if it has been silent since its window.
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
