package grants

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// audited returns what an audit says of entries, a line for each conflict.
func audited(t *testing.T, entries ...Batch) (says []string) {
	t.Helper()
	a := NewAudit(t.TempDir())
	defer a.Close()
	for i := range entries {
		if err := a.Add(At{Sequence: uint64(i + 1)}, &entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	err := a.Judge(func(c Conflict) {
		kind := "conflict"
		switch {
		case c.Unclear != "":
			kind = "unclear"
		case c.Harmless != "":
			kind, _, _ = strings.Cut(c.Harmless, " discarded")
		}
		says = append(says, fmt.Sprintf("%s: %s %d-%d of %s and %s", kind, c.What, c.First, c.Last,
			c.By[0].Process, c.By[1].Process))
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
		case Discard:
			b.Discards = append(b.Discards, g)
		case Window:
			b.Windows = append(b.Windows, g)
		case string:
			b.End = g == "end"
			if r, ok := strings.CutPrefix(g, "registry "); ok {
				b.Segments, b.Numbers = r, r
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
			"conflict: tag a 10-10 of A1 and B1"},
		"a range within another, behind one that ends before": {[]Batch{
			by("A1", 1, ids("a", 1, 100)), by("B1", 1, ids("a", 5, 6)), by("C1", 1, ids("a", 50, 60)),
		}, "conflict: tag a 5-6 of A1 and B1\nconflict: tag a 50-60 of A1 and C1"},
		"a process with itself": {[]Batch{by("A1", 1, ids("a", 1, 10)), by("A1", 2, ids("a", 1, 10))},
			"conflict: tag a 1-10 of A1 and A1"},
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
		}, "conflict: tag a 5-10 of A1 and B1"},
		"what another process, tag or registry discarded": {[]Batch{
			by("A1", 1, ids("a", 1, 10)), by("B1", 1, ids("a", 1, 10)), by("C1", 1, drop("a", 1, 10)),
			by("A2", 1, drop("a", 1, 10)), by("A1", 2, drop("b", 1, 10)), by("A1", 3, "registry R", drop("a", 1, 10)),
		}, "conflict: tag a 1-10 of A1 and B1"},
		"what a process discarded of its own two": {[]Batch{
			by("A1", 1, ids("a", 1, 10), ids("a", 1, 10), drop("a", 1, 10)),
		}, "conflict: tag a 1-10 of A1 and A1"},
		"a discarded range that hides no conflict of two others": {[]Batch{
			by("A1", 1, ids("a", 1, 100), drop("a", 1, 100)), by("B1", 1, ids("a", 10, 20)),
			by("C1", 1, ids("a", 15, 18)), by("D1", 1, ids("a", 200, 201)),
		}, "the first: tag a 10-20 of A1 and B1\nthe first: tag a 15-18 of A1 and C1\n" +
			"conflict: tag a 15-18 of B1 and C1"},
		"an entry that was written twice": {[]Batch{by("A1", 1, ids("a", 1, 10)), by("A1", 1, ids("a", 1, 10))}, ""},
		"two registries": {[]Batch{
			by("A1", 1, "registry R", ids("a", 1, 10), win(1, 9, "acquired")),
			by("B1", 1, "registry S", ids("a", 1, 10), win(1, 9, "acquired")),
		}, ""},
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
		}, "conflict: worker number 5 250-399 of A1 and A2"},
		"a life that another worker resumes": {[]Batch{
			by("A1", 1, win(100, 400, "acquired"), "end"), by("B1", 1, win(250, 400, Resumed)),
		}, "conflict: worker number 5 250-399 of A1 and B1"},
		"a worker that begins in the window of one that is alive": {[]Batch{
			by("A1", 1, win(100, 400, "acquired")), by("B1", 1, win(300, 500, "acquired")), by("A1", 2, ids("a", 1, 1)),
		}, "conflict: worker number 5 300-399 of A1 and B1"},
		"and of one that lost the number later": {[]Batch{
			by("A1", 1, win(100, 400, "acquired")), by("B1", 1, win(300, 500, "acquired")),
			by("A1", 2, win(100, 320, Closed)),
		}, "conflict: worker number 5 300-319 of A1 and B1"},
		"and of one whose end is not known": {[]Batch{
			by("A1", 1, win(100, 400, "acquired")), by("B1", 1, win(300, 500, "acquired")),
		}, "unclear: worker number 5 300-399 of A1 and B1"},
		"a long window over two others": {[]Batch{
			by("A1", 1, win(100, 900, "acquired"), "end"), by("B1", 1, win(200, 250, Closed)),
			by("C1", 1, win(300, 350, Closed)),
		}, "conflict: worker number 5 200-249 of A1 and B1\nconflict: worker number 5 300-349 of A1 and C1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(audited(t, tc.entries...), "\n"); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestAnAuditCountsWhatIsMissing(t *testing.T) {
	a := NewAudit("")
	defer a.Close()
	lossy := by("A1", 9, ids("a", 5, 5))
	lossy.Lost = 7
	for _, b := range []Batch{by("A1", 5, ids("a", 1, 1)), by("B1", 1), by("A1", 6), lossy} {
		if err := a.Add(At{}, &b); err != nil {
			t.Fatal(err)
		}
	}
	if a.Missing != 2 || a.Lost != 7 {
		t.Errorf("%d entries are missing and %d grants lost, want 2 and 7", a.Missing, a.Lost)
	}
}

// big adds n loads of many tags to an audit, as workers would in turns, and one that shares an ID if overlap is set. It
// returns the last entry.
func big(tb testing.TB, a *Audit, n int, overlap bool) (last Batch) {
	const tags, perEntry = 100, 200
	rng := rand.New(rand.NewPCG(1, 1))
	names := make([]string, tags)
	ends := make([]int64, tags)
	for i := range names {
		names[i] = fmt.Sprintf("tag-%d", i)
	}
	b := Batch{}
	entries := make([]uint64, 5)
	for at := uint64(1); n > 0; at++ {
		w := rng.IntN(len(entries))
		entries[w]++
		b.Head = Head{Process: fmt.Sprint("P", w), Instance: fmt.Sprint("w", w), Entry: entries[w], Segments: "R"}
		b.Loads = b.Loads[:0]
		for range min(n, perEntry) {
			tag := rng.IntN(tags)
			first := ends[tag] + 1 + int64(rng.IntN(3))
			ends[tag] = first + 999
			b.Loads = append(b.Loads, Load{Tag: names[tag], First: first, Last: ends[tag]})
		}
		n -= len(b.Loads)
		if overlap && n <= 0 {
			b.Loads[0].First = 500_000
			b.Loads[0].Last = 500_000
			b.Head.Process, b.Head.Entry = "P9", 1
		}
		if err := a.Add(At{Sequence: at}, &b); err != nil {
			tb.Fatal(err)
		}
	}
	return b
}

func TestAnOverlapIsFoundAcrossTheRunsOnDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("it sorts on disk")
	}
	for scene, want := range map[string]string{"": "[0 0]", "shared": "[1 0]", "shared and discarded": "[0 1]"} {
		dir := t.TempDir()
		a := NewAudit(dir)
		last := big(t, a, 2*chunk+1000, scene != "")
		if scene == "shared and discarded" {
			last.Entry++
			last.Loads, last.Discards = nil, []Discard{drop(last.Loads[0].Tag, 500_000, 500_000)}
			if err := a.Add(At{Sequence: 1 << 40}, &last); err != nil {
				t.Fatal(err)
			}
		}
		if len(a.sorter.runs) < 2 {
			t.Fatal("nothing is on disk")
		}
		var conflicts [2]int // and those that are harmless
		err := a.Judge(func(c Conflict) { conflicts[len(c.Harmless[:min(1, len(c.Harmless))])]++ }, func(int64) {})
		if err != nil || fmt.Sprint(conflicts) != want {
			t.Errorf("%s: %d conflicts, want %s; %v", scene, conflicts, want, err)
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
		if err := a.Judge(func(c Conflict) { b.Errorf("%v", c) }, func(int64) {}); err != nil {
			b.Fatal(err)
		}
		a.Close()
	}
}
