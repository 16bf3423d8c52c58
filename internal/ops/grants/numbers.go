package grants

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// A tenure is the time that one process had under a number in one claim: the windows of a claim begin at the same
// time, and each replaces the one before.
type tenure struct {
	from, until       int64
	resumed           bool   // it continues an earlier process of the worker
	closed            bool   // until is the end of the last ID's tick
	firstSeq, lastSeq uint64 // entries that have it
	process, instance string
}

// A numberKey is a worker number under one layout: under another layout its IDs are different.
type numberKey struct {
	registry    string
	layout      string
	epoch, unit int64
	number      int
}

func (a numberKey) compare(b numberKey) int {
	return cmp.Or(cmp.Compare(a.registry, b.registry), cmp.Compare(a.layout, b.layout), cmp.Compare(a.epoch, b.epoch),
		cmp.Compare(a.unit, b.unit), cmp.Compare(a.number, b.number))
}

type tenureKey struct {
	process string
	from    int64
}

// numbers are the tenures of all worker numbers.
type numbers map[numberKey]map[tenureKey]*tenure

func (n numbers) add(at At, b *Batch, w Window) {
	of := numberKey{b.Numbers, b.Layout, b.Epoch, b.Unit, w.Number}
	if n[of] == nil {
		n[of] = make(map[tenureKey]*tenure)
	}
	key := tenureKey{b.Process, w.From}
	t := n[of][key]
	if t == nil {
		t = &tenure{from: w.From, firstSeq: at.Sequence, process: b.Process, instance: b.Instance}
		n[of][key] = t
	}
	t.lastSeq = at.Sequence
	t.resumed = t.resumed || w.How == Resumed
	switch {
	case w.How == Closed:
		t.until, t.closed = w.Until, true
	case !t.closed:
		t.until = max(t.until, w.Until)
	}
}

// judge reports which tenures of a number share times, in the order of the numbers, and counts the numbers.
//
// Two tenures of one process never conflict: its generators follow one another. A tenure that a worker resumed ends
// the tenure of that worker's earlier process where it begins, if that process has ended: the fence keeps the two
// apart. A process that was killed while it stopped may have lowered its window without recording that: then the end
// of its tenure is not proven.
func (n numbers) judge(processes map[string]*process, report func(Finding)) (t Tally) {
	keys := slices.SortedFunc(maps.Keys(n), numberKey.compare)
	for _, key := range keys {
		var found [Harmless]int // by Kind
		tenures := slices.SortedFunc(maps.Values(n[key]), func(a, b *tenure) int {
			return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.firstSeq, b.firstSeq))
		})
		var open []*tenure // tenures that may reach beyond the begin of the next
		for _, next := range tenures {
			open = slices.DeleteFunc(open, func(o *tenure) bool { return o.until <= next.from })
			for _, o := range open {
				if f, shared := share(o, next, processes); shared {
					f.What = fmt.Sprintf("worker number %d", key.number)
					report(f)
					found[f.Kind]++
				}
			}
			if next.until > next.from {
				open = append(open, next)
			}
		}
		switch {
		case found[Repeated] > 0:
			t.Repeated++
		case found[NotProven] > 0:
			t.NotProven++
		default:
			t.Proven++
		}
	}
	return t
}

// share returns the finding about two tenures of which a began first or at the same time.
func share(a, b *tenure, processes map[string]*process) (f Finding, shared bool) {
	over := a.lastSeq < b.firstSeq && !a.closed
	if a.process == b.process || b.until <= b.from || b.resumed && over && a.instance == b.instance {
		return Finding{}, false
	}
	f = Finding{
		First: b.from, Last: min(a.until, b.until) - 1, Times: true, By: [2]Culprit{a.culprit(), b.culprit()},
	}
	if p := processes[a.process]; !a.closed && !p.ended && p.lastSeq < b.firstSeq {
		f.Kind = NotProven
		f.Why = fmt.Sprintf("the end of process %s is not written down: it may have released the number", a.process)
	}
	return f, true
}

func (t *tenure) culprit() Culprit {
	return Culprit{t.instance, t.process, t.from, t.until - 1, t.firstSeq}
}
