package grants

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// An Audit proves that no ID was granted twice, or finds the IDs for which that is not proven. Use it as follows: open
// a reader, read the marks, wait until the last writes before are recorded, open another one, pass its entries to Add,
// and call Judge. It keeps the spans in which a tag was loaded without a hole, 16 bytes each, and the windows.
//
// Law: each write that raises the mark of a tag is recorded, as a load or a hole. So if each ID below the mark is in a
// record, no load is unrecorded; and then no ID was granted twice if no two loads share one. No two claims on a worker
// number may share a time.
type Audit struct {
	Tag     string   // if set, the only tag that is judged
	Eras    []string // of the registry, in their order
	Past    uint64   // entries up to this one were stored before the marks were read
	Whole   bool     // no record is older than the first entry: each tag must begin with its first ID
	Loads   int64
	Resumed bool   // there are loads of a later era than the first: the proof rests on the assumption of the resume
	Lost    uint64 // grants and raises for which workers had no room
	tags    map[string]*ledger
	began   time.Time
	claims  Claims
}

// A ledger is what is recorded of a tag.
type ledger struct {
	granted spans
	known   spans // granted, or a hole
	again   []Span
	begin   int64            // IDs below it may be in entries that are gone
	past    int64            // end of the loads of entries up to Audit.Past
	eras    map[string]*Span // from the first load to the end of the last
}

// settling is by how much entries of several workers may be out of order, but for those that waited while JetStream was
// away: so long after the first entry, entries may follow on ones that are gone.
const settling = time.Minute

// Add takes in an entry.
func (a *Audit) Add(at At, e *Entry) {
	if a.tags == nil {
		a.tags, a.began = make(map[string]*ledger), at.Time
	}
	a.Lost += e.Lost
	a.claims.Add(at, e)
	for tag, all := range e.Loads {
		t := a.of(tag)
		for _, l := range all {
			a.Loads++
			t.load(e.Era, l)
		}
		a.added(at, t, all[len(all)-1].Last+1)
	}
	for tag, all := range e.Raised {
		t := a.of(tag)
		for _, s := range all {
			t.known.add(s)
			a.added(at, t, s[1])
		}
	}
}

// of returns the ledger of a tag; one that nobody sees if the tag is not judged.
func (a *Audit) of(tag string) *ledger {
	t := a.tags[tag]
	if t == nil {
		t = &ledger{eras: make(map[string]*Span)}
		if a.Tag == "" || a.Tag == tag {
			a.tags[tag] = t
		}
	}
	return t
}

func (t *ledger) load(era string, l Load) {
	t.again = append(t.again, t.granted.add(Span{l.First, l.Last + 1})...)
	t.known.add(Span{min(l.First, cmp.Or(l.Above, l.First)), l.Last + 1})
	s := t.eras[era]
	if s == nil {
		s = &Span{l.First, l.Last + 1}
		t.eras[era] = s
	}
	*s = Span{min(s[0], l.First), max(s[1], l.Last+1)}
}

// added notes that an entry has a record of a tag, up to end.
func (a *Audit) added(at At, t *ledger, end int64) {
	if at.Sequence <= a.Past {
		t.past = t.granted.end()
	}
	switch {
	case a.Whole:
	case at.Time.Sub(a.began) < settling:
		t.begin = max(t.begin, end)
	case t.begin == 0:
		t.begin = t.known[0][0]
	}
}

// Tags returns the tags that have a record.
func (a *Audit) Tags() []string { return slices.Sorted(maps.Keys(a.tags)) }

// A Mark is the present mark of a tag, which was read before the entries.
type Mark struct {
	Raw   int64 // as it is written
	Shown int64 // in the present era: nothing is loaded below it
}

// A Finding is IDs of a tag, or times of a worker number, that were granted twice, or for which that is not known.
type Finding struct {
	What     string `json:"what"` // "tag order", "worker number 17" or "the log"
	First    int64  `json:"first,string,omitempty"`
	Last     int64  `json:"last,string,omitempty"` // Unix ms of a worker number
	Message  string `json:"message"`
	Repeated bool   `json:"-"`
}

// Judge returns what it finds, given the present marks, and how many worker numbers there are.
func (a *Audit) Judge(s Scope, marks map[string]Mark) (all []Finding, numbers int) {
	if n := a.Lost + s.Missing + uint64(s.Unreadable); n > 0 {
		all = append(all, Finding{What: "the log", Message: fmt.Sprintf("%d grants found no room, %d entries are "+
			"missing, and %d cannot be read", a.Lost, s.Missing, s.Unreadable)})
	}
	for tag := range marks {
		if a.Whole && (a.Tag == "" || a.Tag == tag) {
			a.of(tag)
		}
	}
	for _, tag := range a.Tags() {
		mark, ok := marks[tag]
		for _, f := range a.tags[tag].judge(a, tag, mark, ok) {
			f.What = "tag " + tag
			all = append(all, f)
		}
	}
	found, numbers := a.claims.judge()
	return append(all, found...), numbers
}

func (t *ledger) judge(a *Audit, tag string, mark Mark, hasMark bool) (all []Finding) {
	find := func(s Span, repeated bool, format string, args ...any) {
		f := Finding{First: s[0], Last: s[1] - 1, Repeated: repeated, Message: fmt.Sprintf(format, args...)}
		all = append(all, f)
	}
	for _, s := range t.again {
		find(s, true, "IDs %d-%d are in two loads: `natsid explain %d --tag %s` names them", s[0], s[1]-1, s[0], tag)
	}
	last := int64(0)
	for i, era := range a.Eras {
		s := t.eras[era]
		if s == nil {
			continue
		}
		a.Resumed = a.Resumed || i > 0
		if s[0] < last {
			find(Span{s[0], last}, false, "%d was loaded in era %s, which began too low: IDs up to %d were loaded "+
				"before it", s[0], era, last-1)
		}
		last = max(last, s[1])
	}
	switch {
	case !hasMark && t.past > 0:
		find(Span{1, t.past}, false, "the tag has no mark any more, and IDs up to %d were loaded", t.past-1)
	case hasMark && mark.Shown < t.past:
		find(Span{mark.Shown, t.past}, false, "the mark is %d, and IDs up to %d were loaded", mark.Shown, t.past-1)
	}
	for _, s := range t.known.gaps(Span{max(1, t.begin), max(mark.Raw, t.past)}) {
		find(s, false, "IDs %d-%d are in no record: a worker died within a second of loading them, somebody wrote "+
			"the mark by hand, or entries are gone", s[0], s[1]-1)
	}
	return all
}
