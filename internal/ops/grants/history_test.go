package grants

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/mutant"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/workerid"
)

// by returns an entry of a process of a worker: "A1" is process A1 of worker A.
func by(process string, grants ...any) Entry {
	e := Entry{Who: Who{Process: process, Instance: process[:1], Layout: "leaf"}, Loads: make(map[string][]Load)}
	for _, g := range grants {
		switch g := g.(type) {
		case Load:
			e.Loads["a"] = append(e.Loads["a"], g)
		case workerid.Window:
			e.Windows = append(e.Windows, g)
		case string:
			e.Layout = g
		case Who:
			e.Registry = g.Registry
		}
	}
	return e
}

func ids(first, last int64) Load { return Load{First: first, Last: last} }

func loaded(start, end int64) segment.Loaded {
	return segment.Loaded{Range: segment.Range{Start: start, End: end}}
}

func raise(from, to int64) Load { return Load{Above: max(1, from), First: to, Last: to - 1} }

// after returns a load that replaced the end of a run of another process.
func after(process string, from, to int64, l Load) Load {
	l.Before = segment.Run{By: process, From: from, To: to}
	return l
}

func above(mark, first, last int64) Load { return Load{Above: mark, First: first, Last: last} }

func win(how workerid.How, from, until int64) workerid.Window {
	return workerid.Window{Number: 5, From: from, Until: until, How: how}
}

// judged returns the findings in a history of the entries, where the mark was read after the first past of them.
func judged(past int, whole bool, mark Mark, entries ...Entry) (says []string) {
	h := History{Whole: whole, Past: uint64(past)}
	for i, e := range entries {
		e.Entry, e.N, e.Stored = uint64(i+1), h.last[e.Process].N+1, time.Unix(int64(50*i), 0)
		h.Add(&e)
	}
	for _, f := range h.Judge(map[string]Mark{"a": mark}) {
		says = append(says, fmt.Sprintf("%s %d-%d", f.Verdict, f.First, f.Last))
	}
	return says
}

func at(mark int64) Mark { return Mark{Raw: mark, Shown: mark} }

func TestAnAuditFindsWhatIsNotSoundAndNothingElse(t *testing.T) {
	created := by("A1", raise(0, 1))
	first := by("A1", ids(1, 100))
	for _, tc := range []struct {
		name    string
		mark    Mark
		entries []Entry
		want    string
	}{
		{"loads that follow one another", at(301), []Entry{created, first, by("B1", ids(101, 200)),
			by("A1", ids(201, 300))}, ""},
		{"in another order", at(301), []Entry{by("A1", ids(201, 300)), by("B1", ids(101, 200)), created, first}, ""},
		{"a restart", at(201), []Entry{created, first, by("A2", ids(101, 200))}, ""},
		{"two workers load the same", at(101), []Entry{first, by("B1", ids(51, 60))}, "repeated 51-60"},
		{"one worker does, twice", at(101), []Entry{first, by("A1", ids(1, 100))}, "repeated 1-100"},
		{"ranges overlap by one ID", at(201), []Entry{first, by("B1", ids(100, 200))}, "repeated 100-100"},
		{"a range spans two others", at(301), []Entry{first, by("A1", ids(201, 300)), by("B1", ids(50, 250))},
			"repeated 50-100, repeated 201-250"},
		{"a resume", at(1e9 + 201), []Entry{by("A1", ids(1, 100)),
			by("A1", above(101, 1e9+101, 1e9+200))}, ""},
		{"a resume of marks that went back", at(1e9 + 151), []Entry{by("A1", ids(1, 100)),
			by("A1", above(51, 1e9+51, 1e9+150))}, ""},
		{"a resume that nobody loaded in yet", Mark{Raw: 51, Shown: 1e9 + 51}, []Entry{by("A1", ids(1, 100))}, ""},
		{"a load that nobody wrote down", at(301), []Entry{first, by("B1", ids(201, 300))}, "not proven 101-200"},
		{"the last one", at(151), []Entry{first}, "not proven 101-150"},
		{"the first one", at(201), []Entry{by("B1", ids(101, 200))}, "not proven 1-100"},
		{"all of a tag", at(101), []Entry{by("B1", win("acquired", 1, 2))}, "not proven 1-100"},
		{"a mark written by hand", at(1301), []Entry{first, by("B1", ids(1201, 1300))}, "not proven 101-1200"},
		{"a mark that an operator raised", at(1301), []Entry{first, by("B1", raise(101, 1201)),
			by("B1", ids(1201, 1300))}, ""},
		{"a day that begins", at(1301), []Entry{first, by("B1", above(101, 1201, 1300))}, ""},
		{"a load that failed", at(301), []Entry{first, by("B1", raise(101, 201)), by("A1", ids(201, 300))}, ""},
		{"and landed", at(301), []Entry{first, by("B1", raise(101, 201)), by("A1", ids(201, 300)),
			by("B1", ids(101, 200))}, ""},
		{"the mark was put back", at(51), []Entry{first}, "not proven 51-100"},
		{"the mark was deleted", Mark{}, []Entry{first}, "not proven 1-100"},
		{"a tag that was made since the marks were read", Mark{}, []Entry{by("B1", win("acquired", 1, 2)), first}, ""},
		{"what was loaded since the mark was read", at(101), []Entry{first, by("B1", ids(201, 300))}, ""},
	} {
		past := len(tc.entries)
		if strings.Contains(tc.name, "since") {
			past = 1
		}
		if got := strings.Join(judged(past, true, tc.mark, tc.entries...), ", "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// The entries before the first one have aged out, or --since leaves them out.
func TestAnAuditBeginsWithTheFirstEntry(t *testing.T) {
	late := by("B1", ids(101, 200)) // in the stream after the load that follows it
	first, fourth := by("A1", ids(1001, 1100)), by("A1", ids(1301, 1400))
	for name, tc := range map[string]struct {
		entries []Entry
		want    string
	}{
		"a tag goes on":             {[]Entry{first, by("A1", ids(1101, 1200))}, ""},
		"its first load comes last": {[]Entry{by("A1", ids(1201, 1300)), first, fourth}, ""},
		"an earlier one is gone":    {[]Entry{first, by("A1", ids(1201, 1300)), fourth}, ""},
		"a later load is missing":   {[]Entry{first, by("A1"), by("A1", ids(1201, 1300))}, "not proven 1101-1200"},
		"it begins later":           {[]Entry{by("A1"), by("A1"), first, late}, ""},
	} {
		end := int64(0)
		for _, e := range tc.entries {
			for _, l := range e.Loads["a"] {
				end = max(end, l.Last+1)
			}
		}
		if got := strings.Join(judged(9, false, at(end), tc.entries...), ", "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestNoTwoProcessesHaveANumberAtOnce(t *testing.T) {
	acquired, killed := by("A1", win("acquired", 0, 30)), by("A1", win("renewed", 0, 30))
	for _, tc := range []struct {
		name    string
		entries []Entry
		want    string
	}{
		{"one after the other", []Entry{acquired, by("A1", win("closed", 0, 10)),
			by("B1", win("acquired", 10, 40))}, ""},
		{"after the end of a window", []Entry{acquired, by("B1", win("acquired", 30, 60))}, ""},
		{"a window that grows", []Entry{acquired, by("A1", win("renewed", 0, 50)),
			by("B1", win("acquired", 50, 60))}, ""},
		{"a window that grew", []Entry{acquired, by("A1", win("renewed", 0, 50)), by("B1", win("acquired", 40, 60)),
			by("A1", ids(1, 2))}, "repeated 40-49"},
		{"two claims of a process", []Entry{acquired, by("A1", win("acquired", 20, 50))}, ""},
		{"killed, resumed, stopped, and acquired", []Entry{killed, by("A2", win("resumed", 5, 30)),
			by("A2", win("closed", 5, 10)), by("B1", win("acquired", 10, 40))}, ""},
		{"killed twice", []Entry{killed, by("A2", win("resumed", 5, 30)), by("A3", win("resumed", 8, 30)),
			by("A3", win("closed", 8, 9)), by("B1", win("acquired", 9, 40))}, ""},
		{"others of another layout", []Entry{acquired, by("B1", "js53", win("acquired", 5, 40)),
			by("A1", ids(1, 2))}, ""},
		{"others of another registry", []Entry{acquired, by("B1", Who{Registry: "R2"}, win("acquired", 20, 50)),
			by("A1", ids(1, 2))}, "repeated 20-29"},
		{"two live workers", []Entry{acquired, by("B1", win("acquired", 20, 50)), by("A1", ids(1, 2))},
			"repeated 20-29"},
		{"one that stopped late", []Entry{acquired, by("B1", win("acquired", 20, 50)),
			by("A1", win("closed", 0, 25))},
			"repeated 20-24"},
		{"one that had stopped before", []Entry{acquired, by("A1", win("closed", 0, 25)),
			by("B1", win("acquired", 20, 50))},
			"repeated 20-24"},
		{"a copy resumes the window of a live worker", []Entry{acquired, by("A2", win("resumed", 5, 30)),
			by("A1", win("renewed", 0, 50))}, "repeated 5-29"},
		{"another worker resumes it", []Entry{acquired, by("B1", win("resumed", 5, 30)),
			by("A1", ids(1, 2))}, "repeated 5-29"},
		{"what was closed is resumed", []Entry{by("A1", win("closed", 0, 20)), by("A2", win("resumed", 5, 30))},
			"repeated 5-19"},
		{"killed while it released the number", []Entry{killed, by("B1", win("acquired", 10, 40))}, "not proven 10-29"},
		{"a window in a window", []Entry{acquired, by("B1", win("acquired", 5, 9)), by("C1", win("acquired", 20, 25)),
			by("A1", ids(1, 2))}, "repeated 5-8, repeated 20-24"},
	} {
		says := judged(9, false, at(math.MaxInt64), tc.entries...)
		says = slices.DeleteFunc(says, func(f string) bool { return strings.Contains(f, fmt.Sprint(math.MaxInt64-1)) })
		if got := strings.Join(says, ", "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestWhatTheLogLacksIsNotProven(t *testing.T) {
	h := History{Scope: Scope{Missing: 1}}
	if all := h.Judge(nil); len(all) != 1 || all[0].Verdict != NotProven {
		t.Errorf("%+v", all)
	}
}

// What an audit finds of a time, explain shows: two claims that contain it.
func TestTheClaimsOfATimeAreTwoWhereItIsNotProven(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	found := 0
	for range 20000 {
		var h History
		for i := range 2 + rnd.IntN(6) {
			from := rnd.Int64N(40)
			how := []workerid.How{workerid.Acquired, workerid.Resumed, workerid.Renewed, workerid.Closed}[rnd.IntN(4)]
			e := by([]string{"A1", "A2", "A3", "B1"}[rnd.IntN(4)], win(how, from, from+1+rnd.Int64N(20)))
			e.Entry, e.N = uint64(i+1), h.last[e.Process].N+1
			h.Add(&e)
		}
		all := h.Judge(nil)
		found += len(all)
		for ms := range int64(60) {
			had := make(map[string]bool) // by process
			for _, c := range h.Claims {
				if c.From <= ms && ms < c.Until {
					had[c.Process] = true
				}
			}
			isFound := slices.ContainsFunc(all, func(f Finding) bool { return f.First <= ms && ms <= f.Last })
			if isFound != (len(had) > 1) {
				t.Fatalf("%d processes had %d, and the audit finds it: %v, in %+v", len(had), ms, isFound, h.Claims)
			}
		}
	}
	if found == 0 {
		t.Error("nothing was found")
	}
}

// A dumb second implementation keeps each ID.
func TestSpansAreThoseOfSingleIDs(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var s spans
		var has [64]int
		for range 1 + rnd.IntN(12) {
			from := rnd.Int64N(60)
			n := Span{from, from + rnd.Int64N(64-from)}
			var again [64]bool
			for _, o := range s.add(n) {
				for id := o[0]; id < o[1]; id++ {
					again[id] = true
				}
			}
			for id := n[0]; id < n[1]; id++ {
				if again[id] != (has[id] > 0) {
					t.Fatalf("%d was there %d times, and that says %v", id, has[id], again[id])
				}
				has[id]++
			}
		}
		var missing [64]bool
		for _, g := range s.gaps(Span{3, 61}) {
			for id := g[0]; id < g[1]; id++ {
				missing[id] = true
			}
		}
		for id := range has {
			if want := has[id] == 0 && 3 <= id && id < 61; missing[id] != want {
				t.Fatalf("%d is missing: %v, want %v, in %v", id, missing[id], want, s)
			}
		}
	}
}

// Loads are made as by compare-and-sets of a mark. Of one that is left out or doubled the audit finds exactly the IDs.
func TestOneLoadThatIsLeftOutOrDoubledIsFound(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 1000 {
		var entries []Entry
		mark := int64(1)
		for range 2 + rnd.IntN(30) {
			end := mark + 1 + rnd.Int64N(20)
			l := above(mark, mark+rnd.Int64N(end-mark), end-1)
			entries = append(entries, by(string('A'+rune(rnd.IntN(3)))+"1", l))
			mark = end
		}
		n := rnd.IntN(len(entries))
		l := entries[n].Loads["a"][0]
		want := fmt.Sprintf("not proven %d-%d", l.Above, l.Last)
		if i%2 == 0 {
			entries = append(entries, by("D1", ids(l.First, l.Last)))
			want = fmt.Sprintf("repeated %d-%d", l.First, l.Last)
		} else {
			entries = slices.Delete(entries, n, n+1)
		}
		rnd.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		if got := judged(len(entries), true, at(mark), entries...); len(got) != 1 || got[0] != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
}

func TestMutants(t *testing.T) {
	text := func(name, file, was, is string) mutant.Mutant {
		return mutant.Mutant{Name: name, Edits: []mutant.Edit{mutant.Text(file, was, is)}}
	}
	mutant.Suite{Mutants: []mutant.Mutant{
		text("IDs that are in two loads are not kept", "history.go", "t.again = append(t.again, t.granted.add",
			"_ = append(t.again, t.granted.add"),
		text("adjacent spans share an ID", "spans.go", "both[0] < both[1]", "both[0] <= both[1]"),
		text("a span reaches one other at most", "spans.go", "for ; end < len(*s) &&",
			"for ; end < min(len(*s), i+1) &&"),
		text("a range that was left out above a mark is unknown", "history.go",
			"from := cmp.Or(l.Above, l.First)", "from := l.First"),
		text("a raise grants its IDs", "history.go", "t.granted.add(Span{l.First,",
			"t.granted.add(Span{from,"),
		text("a mark that went back is not noticed", "history.go", "mark.Shown < t.past", "false"),
		text("a mark is taken as it is written", "history.go", "mark.Shown < t.past", "mark.Raw < t.past"),
		text("gaps below the mark are not looked for", "history.go", "end := max(mark.Raw, t.past)", "end := int64(0)"),
		text("the first IDs need no record", "history.go", "max(1, t.begin)", "max(t.known[0][0], t.begin)"),
		text("a log that is cut must begin with the first ID", "history.go", "if !h.Whole &&", "if false &&"),
		text("what was loaded since counts as from before", "history.go", "e.Entry <= h.Past", "true"),
		text("a tag without a record is not judged", "history.go", "			h.of(tag, time.Time{})\n", ""),
		text("the first entries must be in order", "history.go", "e.Stored.Sub(t.began) < settling", "t.begin == 0"),
		text("what is missing is not said", "history.go", "h.Missing > 0", "false"),
		text("a claim does not grow", "claims.go", "c.Until = max(c.Until, w.Until)", ""),
		text("a closed claim keeps its end", "claims.go", "c.Until, c.closed = w.Until, true", "c.closed = true"),
		text("a resumed window does not end the earlier one", "claims.go", "o.Until = min(o.Until, c.From)", ""),
		text("a window of a live process stays resumed", "claims.go", "o.Until = min(o.Until, c.From)",
			"o.Until, o.closed = min(o.Until, c.From), true"),
		text("another worker resumes a window", "claims.go", "o.Instance == c.Instance && ", ""),
		text("a closed window is resumed", "claims.go", "!o.closed &&", "true &&"),
		text("a window is compared with the next one only", "claims.go", "range sorted[i+1:]",
			"range sorted[i+1:min(i+2, len(sorted))]"),
		text("layouts share their IDs", "claims.go", "c.Layout == o.Layout && ", ""),
		text("claims of a process conflict", "claims.go", "a.Process == b.Process || ", ""),
		text("who died while it stopped is taken for alive", "claims.go", "!a.closed && h.last", "false && h.last"),
		text("a run is nobody's", "history.go", "t.runs = append(t.runs, l.Before)", "continue"),
		text("the run of the mark is nobody's", "history.go", "append(t.runs, mark.Run)", "t.runs"),
		text("a run of one process hides that of another", "history.go", " && o.By != r.By", " && false"),
		text("processes whose runs do not meet contradict each other", "history.go", "s[0] < o.To", "true"),
		text("each run of a process is another process's", "history.go", " && o.By != r.By", " && o != r"),
		text("marks that went back lose loads of one process", "history.go", "!t.isBack && ", ""),
		text("what replaced a mark without a hole went back", "history.go", "from < l.First && ", ""),
		text("a run reaches beyond the mark", "history.go", "min(r.To, end)", "r.To"),
		text("a run begins before the log", "history.go", "max(1, t.begin, r.From)", "max(1, r.From)"),
		text("IDs are lost twice", "history.go", "				t.known.add(s)\n", ""),
		text("a live worker is taken for one that died", "claims.go",
			"h.last[a.Process].Entry < b.Entry", "true"),
	}, Args: []string{"-test.run=^Test(ALoss|AnAudit|NoTwo|WhatTheLog|Spans|OneLoad|TheClaims)"},
		Finding: regexp.MustCompile(`_test\.go:\d+: (.*)`),
	}.Run(t)
}
