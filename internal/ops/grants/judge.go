package grants

import (
	"fmt"
	"slices"
)

// Judge calls report with each finding, and progress with the number of loads judged. It follows the chain of each
// tag first, and then compares the grants of tags whose grants do not rise with the revisions.
func (a *Audit) Judge(report func(Finding), progress func(loads int64)) error {
	a.judgeNumbers(report)
	crossed := make(map[uint32]bool)
	var unproven []uint32
	err := a.chains(func(c *chain) {
		a.OfTags.Proven++
		a.Held += c.held
		if c.resumed {
			a.Resumed++
		}
		if c.crossed {
			crossed[c.tag] = true
		}
		if c.faults > 0 {
			unproven = append(unproven, c.tag)
			report(c.finding())
		}
	}, progress)
	if err != nil {
		return err
	}
	repeated, err := a.sweep(crossed, report)
	if err != nil {
		return err
	}
	unproven = slices.DeleteFunc(unproven, func(tag uint32) bool { return repeated[tag] })
	a.OfTags.Repeated, a.OfTags.NotProven = len(repeated), len(unproven)
	a.OfTags.Proven -= len(repeated) + len(unproven)
	return nil
}

// judgeNumbers judges the worker numbers. A missing window may be of any number.
func (a *Audit) judgeNumbers(report func(Finding)) {
	a.OfNumbers = a.numbers.judge(a.processes, report)
	if a.Lost+a.Missing+uint64(a.Unreadable) > 0 {
		a.OfNumbers.NotProven += a.OfNumbers.Proven
		a.OfNumbers.Proven = 0
		why := fmt.Sprintf("%d grants that workers could not keep, %d entries that are missing and %d that cannot be "+
			"read may have had windows", a.Lost, a.Missing, a.Unreadable)
		report(Finding{Kind: NotProven, What: "worker numbers", Why: why})
	}
}

// chains calls ended with the chain of each tag that has a grant or a write.
func (a *Audit) chains(ended func(*chain), progress func(loads int64)) error {
	a.founding = a.eras[a.Founding]
	a.cut = slices.ContainsFunc(a.list, func(p *process) bool { return p.first > 1 })
	c := &chain{audit: a}
	end := func() {
		if c.rows > 0 {
			c.end()
			ended(c)
		}
	}
	var done int64
	err := a.rows.each(func(r row) error {
		if r.tag != c.tag {
			end()
			c = &chain{audit: a, tag: r.tag}
		}
		c.pass(r)
		if r.kind == aLoad {
			if done++; done&0xffff == 0 {
				progress(done)
			}
		}
		return nil
	})
	end()
	return err
}

// sweep compares the grants of some tags, in the order of their IDs: each grant with those before that reach it. It
// returns the tags that have IDs granted twice.
func (a *Audit) sweep(tags map[uint32]bool, report func(Finding)) (repeated map[uint32]bool, err error) {
	repeated = make(map[uint32]bool)
	if len(tags) == 0 {
		return repeated, nil
	}
	byIDs := sorter{dir: a.rows.dir, chunk: a.rows.chunk, compare: byID}
	defer byIDs.close()
	err = a.rows.each(func(r row) error {
		if tags[r.tag] && (r.kind == aLoad || r.kind == aDiscard) {
			return byIDs.add(r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s := sweep{audit: a, report: func(f Finding, tag uint32) {
		report(f)
		if f.Kind == Repeated {
			repeated[tag] = true
		}
	}}
	err = byIDs.each(func(r row) error {
		s.pass(r)
		return nil
	})
	s.settle(nil)
	return repeated, err
}

// A sweep passes over the IDs of each tag in rising order.
type sweep struct {
	audit  *Audit
	report func(f Finding, tag uint32)

	tag      uint32
	open     []row  // the loads that reach the present ID
	discards []row  // the discards that reach the present ID, or the IDs that a pair shares
	pairs    []pair // pairs that share IDs, whose discards have not all been seen yet
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
	if r.kind == aDiscard {
		s.discards = append(s.discards, r)
		return
	}
	for _, o := range s.open {
		s.pairs = append(s.pairs, pair{[2]row{o, r}, r.first, min(r.last, o.last)})
	}
	s.open = append(s.open, r)
}

// settle reports the pairs whose shared IDs are below the next row, all pairs if next is nil, and drops discards that
// no pair needs.
func (s *sweep) settle(next *row) {
	s.pairs = slices.DeleteFunc(s.pairs, func(p pair) bool {
		done := next == nil || p.last < next.first
		if done {
			s.report(s.judge(p), s.tag)
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

// judge returns the finding about a pair.
//
// Law: a process never issued the IDs that it discarded. So two processes repeat nothing if one of them has discarded
// each ID that they share. Two loads of one process stay a repeat: it is unknown which load it discarded.
func (s *sweep) judge(p pair) Finding {
	a, b := p.by[0], p.by[1]
	f := Finding{
		Kind: Harmless, What: "tag " + s.audit.names[s.tag], First: p.first, Last: p.last,
		By: [2]Culprit{s.audit.culprit(a), s.audit.culprit(b)},
	}
	switch {
	case a.process == b.process:
		f.Kind = Repeated
	case s.discarded(p, a.process, a.process):
		f.Why = "the first discarded these IDs, and issued none"
	case s.discarded(p, b.process, b.process):
		f.Why = "the second discarded these IDs, and issued none"
	case s.discarded(p, a.process, b.process):
		f.Why = "each of these IDs was discarded by one, and not issued"
	default:
		f.Kind = Repeated
	}
	return f
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
