package grants

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/natsid/natsid/segment"
)

// A History collects entries. It keeps the spans of IDs that were loaded of each tag, adjacent loads as one, and the
// claims on worker numbers. Set the fields down to Past before the first [History.Read].
type History struct {
	Tag   string    // if set, loads of other tags are left out
	ID    int64     // Found gets the loads that contain it, and the raises that left it out
	Since time.Time // entries that were stored before are left out
	Past  uint64    // entries up to this one were stored before the marks were read
	Whole bool      // the first entry is the oldest record ever: each tag must begin with its first ID; set by Read

	Scope
	Found  []Grant
	Claims []*Grant // in the order of their first entries
	tags   map[string]*ledger
	last   map[string]Entry // the last one, by process
}

// A Scope says what a History has.
type Scope struct {
	From    time.Time `json:"from,omitzero"` // when the first entry was stored
	Entries int       `json:"entries"`
	Missing uint64    `json:"missing"` // entries of known processes that were lost, and dropped grants
	Loads   int       `json:"loads"`
	Windows int       `json:"windows"`
	Tags    int       `json:"tags"` // set by [History.Judge]
}

// A ledger has the records of one tag.
type ledger struct {
	granted spans
	known   spans         // IDs that were granted, or are a recorded hole
	runs    []segment.Run // those with IDs that were not known when they were recorded
	again   []Span        // IDs that were granted twice
	began   time.Time     // when its first entry was stored
	begin   int64         // IDs below begin may be in entries that have aged out
	past    int64         // end of the loads in entries up to History.Past
	isBack  bool          // a load replaced a mark below IDs that were granted before: the marks went back
}

// lacks returns the parts of a run, below end, that are not known.
func (t *ledger) lacks(r segment.Run, end int64) []Span {
	return t.known.gaps(Span{max(1, t.begin, r.From), min(r.To, end)})
}

// settling is the longest time by which entries of several workers are out of order, late ones excepted. So for that
// long after the first entry of a tag, an entry may follow on loads whose own entries have aged out.
const settling = time.Minute

// Add adds an entry, unless it is the second copy of one. Entries must be added in the order of the stream.
func (h *History) Add(e *Entry) {
	before := h.last[e.Process].N
	if e.Stored.Before(h.Since) || e.N <= before {
		return
	}
	if h.Entries++; h.Entries == 1 {
		h.From, h.last = e.Stored, make(map[string]Entry)
	}
	if h.Whole || before > 0 {
		h.Missing += e.N - before - 1
	}
	h.last[e.Process] = *e
	for _, w := range e.Windows {
		h.Windows++
		h.claim(e.Who, w)
	}
	for tag, all := range e.Loads {
		if h.Tag != "" && h.Tag != tag {
			continue
		}
		t := h.of(tag, e.Stored)
		for i, l := range all {
			from := cmp.Or(l.Above, l.First)
			if l.First <= l.Last { // a raise may not have landed
				h.Loads++
				hole := Span{from, l.First}
				t.isBack = t.isBack || from < l.First && !slices.Equal(t.granted.gaps(hole), []Span{hole})
				if e.Entry <= h.Past {
					t.past = max(t.past, l.Last+1)
				}
			}
			t.again = append(t.again, t.granted.add(Span{l.First, l.Last + 1})...)
			t.known.add(Span{from, l.Last + 1})
			if t.lacks(l.Before, math.MaxInt64) != nil {
				t.runs = append(t.runs, l.Before)
			}
			if from <= h.ID && h.ID <= l.Last {
				h.Found = append(h.Found, Grant{Who: e.Who, Tag: tag, Load: &all[i]})
			}
			if !h.Whole && e.Stored.Sub(t.began) < settling {
				t.begin = max(t.begin, l.Last+1)
			}
		}
	}
}

// of returns the ledger of a tag.
func (h *History) of(tag string, now time.Time) *ledger {
	if h.tags == nil {
		h.tags = make(map[string]*ledger)
	}
	if h.tags[tag] == nil {
		h.tags[tag] = &ledger{began: now}
	}
	return h.tags[tag]
}

// A Mark is the mark of a tag, as it was read before the entries of the log.
type Mark struct {
	Raw   int64       // as stored in the bucket
	Shown int64       // lifted to the present era: nothing is loaded below it
	Run   segment.Run // the run that ends at Raw; zero if it is not known
}

// A Finding names IDs of a tag, or times of a worker number, that were granted twice, or may have been.
type Finding struct {
	Verdict string `json:"verdict"` // Repeated, NotProven or Lost
	What    string `json:"what"`    // "tag order", "worker number 17" or "the log"
	First   int64  `json:"first,string,omitempty"`
	Last    int64  `json:"last,string,omitempty"` // Unix ms of a worker number
	Message string `json:"message"`
}

// The verdicts.
const (
	Proven    = "proven" // no finding
	Repeated  = "repeated"
	NotProven = "not proven"
	Lost      = "lost" // no record of their process, but a run of it: proven
)

// Judge returns the IDs and times for which it is not proven that they were granted at most once, given the present
// marks; repeated ones come first.
//
// Law: each write that raises the mark of a tag is recorded, as a load or a hole. So if each ID below the mark is in a
// record, no load is unrecorded, and no ID was granted twice if no two loads share one. If an ID is in no record, two
// unrecorded loads could contain it. If it is in a run, and in runs of no other process, that process alone has made
// them, and its floor keeps them apart. If the marks went back, other runs may be in no record. No two claims on a
// worker number share a time.
func (h *History) Judge(marks map[string]Mark) []Finding {
	all := []Finding{}
	if h.Missing > 0 {
		all = append(all, Finding{Verdict: NotProven, What: "the log",
			Message: fmt.Sprintf("%d entries are missing between others of their processes", h.Missing)})
	}
	for tag := range marks {
		if h.Whole && (h.Tag == "" || h.Tag == tag) {
			h.of(tag, time.Time{})
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(h.tags)) {
		all = append(all, h.judge(h.tags[tag], tag, marks[tag])...)
	}
	all = append(all, h.judgeClaims()...)
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(b.Verdict, a.Verdict) })
	h.Tags = len(h.tags)
	return all
}

// judge returns the findings about one tag. mark is zero if the tag had none when the marks were read.
func (h *History) judge(t *ledger, tag string, mark Mark) (all []Finding) {
	find := func(verdict string, s Span, format string, args ...any) {
		all = append(all, Finding{verdict, "tag " + tag, s[0], s[1] - 1, fmt.Sprintf(format, args...)})
	}
	for _, s := range t.again {
		find(Repeated, s, "IDs %d-%d are in two loads: `natsid explain %d --tag %s` names them",
			s[0], s[1]-1, s[0], tag)
	}
	if mark.Shown < t.past {
		find(NotProven, Span{max(1, mark.Shown), t.past}, "the mark is %d, and IDs up to %d were loaded", mark.Shown,
			t.past-1)
	}
	end := max(mark.Raw, t.past)
	runs := append(t.runs, mark.Run)
	for _, r := range runs {
		for _, s := range t.lacks(r, end) {
			if !t.isBack && !slices.ContainsFunc(runs, func(o segment.Run) bool {
				return o.From < s[1] && s[0] < o.To && o.By != r.By
			}) {
				t.known.add(s)
				who := cmp.Or(h.last[r.By].Instance, "unknown")
				find(Lost, s, "IDs %d-%d are in no record: nobody but worker %s, process %s, can have loaded them, "+
					"which died within a second of that, or has not recorded it yet", s[0], s[1]-1, who, r.By)
			}
		}
	}
	for _, s := range t.known.gaps(Span{max(1, t.begin), end}) {
		find(NotProven, s, "IDs %d-%d are in no record: workers died within a second of loading them, somebody "+
			"wrote the mark by hand, or entries are gone", s[0], s[1]-1)
	}
	return all
}
