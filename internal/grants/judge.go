package grants

import "slices"

// Judge calls report with each conflict, the harmless ones too, and progress with how many loads were judged. It judges
// loads in the order of tags and IDs, each one against those before that reach it: one at most, where none conflict.
func (a *Audit) Judge(report func(Conflict), progress func(loads int64)) error {
	for _, c := range a.numbers.judge(a.processes) {
		report(c)
	}
	s := sweep{audit: a, report: report}
	var done int64
	err := a.sorter.each(func(r row) error {
		s.pass(r)
		if !r.discard {
			if done++; done&0xffff == 0 {
				progress(done)
			}
		}
		return nil
	})
	s.settle(nil)
	return err
}

// A sweep passes the IDs of each tag from below.
type sweep struct {
	audit  *Audit
	report func(Conflict)

	tag      uint32
	open     []row  // the loads that reach the present ID
	discards []row  // those that reach it, or what a pair shares
	pairs    []pair // that share IDs, up to which what is discarded has not all been seen yet
}

// A pair is two loads that share IDs.
type pair struct {
	by          [2]row
	first, last int64
}

// pass takes the next row of the audit.
func (s *sweep) pass(r row) {
	if r.tag != s.tag {
		s.settle(nil)
		s.tag, s.open, s.discards = r.tag, s.open[:0], s.discards[:0]
	}
	s.settle(&r)
	s.open = slices.DeleteFunc(s.open, func(o row) bool { return o.last < r.first })
	if r.discard {
		s.discards = append(s.discards, r)
		return
	}
	for _, o := range s.open {
		s.pairs = append(s.pairs, pair{[2]row{o, r}, r.first, min(r.last, o.last)})
	}
	s.open = append(s.open, r)
}

// settle reports the pairs that share nothing from the next row on, all if that is nil, and forgets what is discarded
// below.
func (s *sweep) settle(next *row) {
	s.pairs = slices.DeleteFunc(s.pairs, func(p pair) bool {
		done := next == nil || p.last < next.first
		if done {
			s.report(s.judge(p))
		}
		return done
	})
	if next == nil || len(s.discards) == 0 {
		return
	}
	needed := next.first
	for _, p := range s.pairs {
		needed = min(needed, p.first)
	}
	s.discards = slices.DeleteFunc(s.discards, func(d row) bool { return d.last < needed })
}

// judge returns what is to be said of a pair.
//
// Law: what a process discarded it never issued. So it is no conflict if, of each ID that two processes share, one of
// them says that. Of one process it stays a conflict: which of its loads it discarded is not known.
func (s *sweep) judge(p pair) Conflict {
	a, b := p.by[0], p.by[1]
	key := s.audit.names[s.tag]
	c := Conflict{
		Registry: key.registry, What: "tag " + key.tag, First: p.first, Last: p.last,
		By: [2]Culprit{s.audit.culprit(a), s.audit.culprit(b)},
	}
	switch {
	case a.process == b.process:
	case s.discarded(p, a.process, a.process):
		c.Harmless = "the first discarded these IDs, and issued none"
	case s.discarded(p, b.process, b.process):
		c.Harmless = "the second discarded these IDs, and issued none"
	case s.discarded(p, a.process, b.process):
		c.Harmless = "each of these IDs was discarded by one, and not issued"
	}
	return c
}

// discarded reports whether one of two processes discarded each ID that a pair shares.
func (s *sweep) discarded(p pair, a, b uint32) bool {
	next := p.first
	for _, d := range s.discards { // in the order of their first IDs
		if d.process != a && d.process != b || d.last < next {
			continue
		}
		if d.first > next {
			return false
		}
		if next = d.last + 1; d.last >= p.last {
			return true
		}
	}
	return false
}
