package grants

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

// audited returns the findings of an audit, a line for each pair of grants with shared IDs.
func audited(t *testing.T, entries ...Batch) (says []string) {
	t.Helper()
	a := NewAudit(t.TempDir())
	defer a.Close()
	for i := range entries {
		if err := a.Add(At{Sequence: uint64(i + 1)}, &entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	err := a.Judge(func(f Finding) {
		kind := [...]string{Repeated: "repeated", NotProven: "not proven"}
		if f.By[0].Process == "" {
			return
		}
		what, _, _ := strings.Cut(f.Why, " discarded")
		if f.Kind != Harmless {
			what = kind[f.Kind]
		}
		says = append(says, fmt.Sprintf("%s: %s %d-%d of %s and %s", what, f.What, f.First, f.Last,
			f.By[0].Process, f.By[1].Process))
	}, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	return says
}

// by returns an entry of a process of a worker: "A1" is process A1 of worker A.
func by(process string, entry uint64, grants ...any) Batch {
	b := Batch{Head: Head{Process: process, Instance: process[:1], Entry: entry}}
	for _, g := range grants {
		switch g := g.(type) {
		case Load:
			b.Loads = append(b.Loads, g)
		case Write:
			b.Writes = append(b.Writes, g)
		case Discard:
			b.Discards = append(b.Discards, g)
		case Window:
			b.Windows = append(b.Windows, g)
		case string:
			b.End = b.End || g == "end"
			if g == "lost" {
				b.Lost = 7
			}
			if r, ok := strings.CutPrefix(g, "registry "); ok {
				b.Segments, b.Numbers = r, r
			}
			if e, ok := strings.CutPrefix(g, "era "); ok {
				b.Era = e
			}
			if l, ok := strings.CutPrefix(g, "layout "); ok {
				b.Layout = l
			}
		}
	}
	return b
}

func drop(tag string, first, last int64) Discard { return Discard{Tag: tag, First: first, Last: last} }

func ids(tag string, first, last int64) Load { return Load{Tag: tag, First: first, Last: last} }

func win(from, until int64, how string) Window {
	return Window{Number: 5, From: from, Until: until, How: how}
}

func TestAnAuditNamesWhoSharesIDsAndNobodyElse(t *testing.T) {
	for name, tc := range map[string]struct {
		entries []Batch
		want    string
	}{
		"ranges that touch, with a hole, out of order": {[]Batch{
			by("A1", 1, ids("a", 1, 10), ids("a", 31, 40)), by("B1", 1, ids("a", 11, 20)), by("A1", 2, ids("b", 1, 10)),
		}, ""},
		"a shared ID": {[]Batch{by("A1", 1, ids("a", 1, 10)), by("B1", 1, ids("a", 10, 20))},
			"repeated: tag a 10-10 of A1 and B1"},
		"a range within another, behind one that ends before": {[]Batch{
			by("A1", 1, ids("a", 1, 100)), by("B1", 1, ids("a", 5, 6)), by("C1", 1, ids("a", 50, 60)),
		}, "repeated: tag a 5-6 of A1 and B1\nrepeated: tag a 50-60 of A1 and C1"},
		"a process with itself": {[]Batch{by("A1", 1, ids("a", 1, 10)), by("A1", 2, ids("a", 1, 10))},
			"repeated: tag a 1-10 of A1 and A1"},
		"a range that was discarded unused, by who loaded it first": {[]Batch{
			by("A1", 1, ids("a", 1, 10)), by("B1", 1, ids("a", 5, 14)), by("A1", 2, drop("a", 5, 10)),
		}, "the first: tag a 5-10 of A1 and B1"},
		"by who loaded it next, in parts": {[]Batch{
			by("A1", 1, ids("a", 1, 10)), by("B1", 1, ids("a", 5, 14)), by("B1", 2, drop("a", 5, 8), drop("a", 9, 14)),
		}, "the second: tag a 5-10 of A1 and B1"},
		"by one or the other": {[]Batch{
			by("A1", 1, ids("a", 1, 10), drop("a", 7, 10)), by("B1", 1, ids("a", 5, 14), drop("a", 4, 6)),
		}, "each of these IDs was: tag a 5-10 of A1 and B1"},
		"a range of which an ID may have been issued": {[]Batch{
			by("A1", 1, ids("a", 1, 10)), by("B1", 1, ids("a", 5, 14)), by("A1", 2, drop("a", 5, 7), drop("a", 9, 10)),
		}, "repeated: tag a 5-10 of A1 and B1"},
		"what another process or tag discarded": {[]Batch{
			by("A1", 1, ids("a", 1, 10)), by("B1", 1, ids("a", 1, 10)), by("C1", 1, drop("a", 1, 10)),
			by("A2", 1, drop("a", 1, 10)), by("A1", 2, drop("b", 1, 10)),
		}, "repeated: tag a 1-10 of A1 and B1"},
		"what a process discarded of its own two": {[]Batch{
			by("A1", 1, ids("a", 1, 10), ids("a", 1, 10), drop("a", 1, 10)),
		}, "repeated: tag a 1-10 of A1 and A1"},
		"a discarded range that hides no conflict of two others": {[]Batch{
			by("A1", 1, ids("a", 1, 100), drop("a", 1, 100)), by("B1", 1, ids("a", 10, 20)),
			by("C1", 1, ids("a", 15, 18)), by("D1", 1, ids("a", 200, 201)),
		}, "the first: tag a 10-20 of A1 and B1\nthe first: tag a 15-18 of A1 and C1\n" +
			"repeated: tag a 15-18 of B1 and C1"},
		"an entry that was written twice": {[]Batch{by("A1", 1, ids("a", 1, 10)), by("A1", 1, ids("a", 1, 10))}, ""},
		"two registries": {[]Batch{
			by("A1", 1, "registry R", win(1, 9, "acquired")), by("B1", 1, "registry S", win(1, 9, "acquired")),
		}, ""},
		"a tag in two registries of marks, of which one took the place of the other": {[]Batch{
			by("A1", 1, "registry R", ids("a", 1, 10)), by("B1", 1, "registry S", ids("a", 1, 10)),
		}, "repeated: tag a 1-10 of A1 and B1"},
		"another layout": {[]Batch{
			by("A1", 1, "layout x", win(1, 9, "acquired")), by("B1", 1, "layout y", win(1, 9, "acquired")),
			by("A1", 2, "layout x", win(1, 19, "renewed")),
		}, ""},

		"a window that its owner extends": {[]Batch{
			by("A1", 1, win(100, 400, "acquired")), by("A1", 2, win(100, 600, "renewed")),
			by("B1", 1, win(600, 900, "acquired")),
		}, ""},
		"a number that was released, and acquired by another": {[]Batch{
			by("A1", 1, win(100, 400, "acquired")), by("A1", 2, win(100, 210, Closed), "end"),
			by("B1", 1, win(210, 500, "acquired")),
		}, ""},
		"a close that is written late": {[]Batch{
			by("A1", 1, win(100, 400, "acquired")), by("B1", 1, win(210, 500, "acquired")),
			by("A1", 2, win(100, 210, Closed), "end"),
		}, ""},
		"a resumed life": {[]Batch{
			by("A1", 1, win(100, 400, "acquired")), by("A2", 1, win(250, 400, Resumed)),
			by("A2", 2, win(250, 700, "renewed")),
		}, ""},
		"a resumed life beside the first": {[]Batch{
			by("A1", 1, win(100, 400, "acquired")), by("A2", 1, win(250, 400, Resumed)),
			by("A1", 2, win(100, 700, "renewed")),
		}, "repeated: worker number 5 250-399 of A1 and A2"},
		"a life that another worker resumes": {[]Batch{
			by("A1", 1, win(100, 400, "acquired"), "end"), by("B1", 1, win(250, 400, Resumed)),
		}, "repeated: worker number 5 250-399 of A1 and B1"},
		"a worker that begins in the window of one that is alive": {[]Batch{
			by("A1", 1, win(100, 400, "acquired")), by("B1", 1, win(300, 500, "acquired")), by("A1", 2, ids("a", 1, 1)),
		}, "repeated: worker number 5 300-399 of A1 and B1"},
		"and of one that lost the number later": {[]Batch{
			by("A1", 1, win(100, 400, "acquired")), by("B1", 1, win(300, 500, "acquired")),
			by("A1", 2, win(100, 320, Closed)),
		}, "repeated: worker number 5 300-319 of A1 and B1"},
		"and of one whose end is not known": {[]Batch{
			by("A1", 1, win(100, 400, "acquired")), by("B1", 1, win(300, 500, "acquired")),
		}, "not proven: worker number 5 300-399 of A1 and B1"},
		"a long window over two others": {[]Batch{
			by("A1", 1, win(100, 900, "acquired"), "end"), by("B1", 1, win(200, 250, Closed)),
			by("C1", 1, win(300, 350, Closed)),
		}, "repeated: worker number 5 200-249 of A1 and B1\nrepeated: worker number 5 300-349 of A1 and C1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(audited(t, tc.entries...), "\n"); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestAnAuditCountsWhatIsMissingAndProvesNoNumberWithoutIt(t *testing.T) {
	for want, entries := range map[string][]Batch{
		"0 0 {1 0 0}": {by("A1", 5, win(1, 9, "acquired")), by("B1", 1, "end"), by("A1", 6, "end")},
		"2 0 {0 0 1}": {by("A1", 5, win(1, 9, "acquired")), by("B1", 1, "end"), by("A1", 8, "end")},
		"0 7 {0 0 1}": {by("A1", 5, win(1, 9, "acquired")), by("B1", 1, "end"), by("A1", 6, "end", "lost")},
		"0 7 {0 1 0}": {by("A1", 5, win(1, 9, "acquired"), "lost", "end"), by("B1", 1, win(1, 9, "acquired"), "end")},
	} {
		a := NewAudit("")
		defer a.Close()
		for i, b := range entries {
			if err := a.Add(At{Sequence: uint64(i + 1)}, &b); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Judge(func(Finding) {}, func(int64) {}); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(a.Missing, a.Lost, a.OfNumbers); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// big adds n loads of many tags to an audit, as workers would in turns, and one that shares an ID if overlap is set. It
// returns the last entry.
func big(tb testing.TB, a *Audit, n int, overlap bool) (last Batch) {
	const tags, perEntry = 100, 200
	rng := rand.New(rand.NewPCG(1, 1))
	names := make([]string, tags)
	ends, revisions, revision := make([]int64, tags), make([]uint64, tags), uint64(1e15)
	for i := range names {
		names[i] = fmt.Sprintf("tag-%d", i)
	}
	b := Batch{}
	entries := make([]uint64, 5)
	sequence := uint64(0)
	for at := time.UnixMilli(1e12); n > 0; at = at.Add(time.Second) {
		sequence++
		w := rng.IntN(len(entries))
		entries[w]++
		b.Head = Head{Process: fmt.Sprint("P", w), Instance: fmt.Sprint("w", w), Entry: entries[w], Segments: "R"}
		b.Loads = b.Loads[:0]
		for range min(n, perEntry) {
			tag := rng.IntN(tags)
			first := ends[tag] + 1 + int64(rng.IntN(3))
			l := Load{
				Tag: names[tag], First: first, Last: first + 999, Before: ends[tag] + 1, Read: revisions[tag],
				Written: revision, Time: at.UnixMilli(),
			}
			if l.Read == 0 {
				l.Before = 0
			}
			ends[tag], revisions[tag] = l.Last, revision
			revision++
			b.Loads = append(b.Loads, l)
		}
		n -= len(b.Loads)
		if overlap && n <= 0 {
			b.Loads = append(b.Loads, Load{
				Tag: b.Loads[0].Tag, First: 50_000, Last: 50_000, Before: 50_000, Read: 7, Written: revision,
			})
			b.Head.Process, b.Head.Entry = "P9", 1
		}
		if err := a.Add(At{Sequence: sequence, Time: at}, &b); err != nil {
			tb.Fatal(err)
		}
	}
	a.MarksNow()
	for tag, name := range names {
		if err := a.Point(name, "", ends[tag]+1, ends[tag]+1, revisions[tag], time.UnixMilli(1e13)); err != nil {
			tb.Fatal(err)
		}
	}
	return b
}

func TestAnOverlapIsFoundAcrossTheRunsOnDisk(t *testing.T) {
	for scene, want := range map[string]string{
		"": "[0 0 0] {100 0 0}", "shared": "[1 1 0] {99 1 0}", "shared and discarded": "[0 1 1] {99 0 1}",
	} {
		dir := t.TempDir()
		a := NewAudit(dir)
		a.rows.chunk = 10_000
		last := big(t, a, 2*a.rows.chunk+1000, scene != "")
		if scene == "shared and discarded" {
			last.Entry++
			last.Loads, last.Discards = nil, []Discard{drop(last.Loads[len(last.Loads)-1].Tag, 50_000, 50_000)}
			if err := a.Add(At{Sequence: 1 << 40}, &last); err != nil {
				t.Fatal(err)
			}
		}
		if len(a.rows.runs) < 2 {
			t.Fatal("nothing is on disk")
		}
		var found [3]int // by Kind
		err := a.Judge(func(f Finding) { found[f.Kind]++ }, func(int64) {})
		if got := fmt.Sprint(found, a.OfTags); err != nil || got != want {
			t.Errorf("%s: %s, want %s; %v", scene, got, want, err)
		}
		a.Close()
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%d files are left", len(left))
		}
	}
}

// BenchmarkAudit reports how long an audit of a million loads takes, without reading them from JetStream.
func BenchmarkAudit(b *testing.B) {
	for b.Loop() {
		a := NewAudit("")
		big(b, a, 1_000_000, false)
		if err := a.Judge(func(f Finding) { b.Errorf("%v", f) }, func(int64) {}); err != nil {
			b.Fatal(err)
		}
		a.Close()
	}
}
