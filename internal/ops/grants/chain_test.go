package grants

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"
)

// In these tests revision r of a mark is written at second r.

// got returns a load of tag a that read the mark at its first ID.
func got(first, last int64, read, written uint64) Load {
	return Load{
		Tag: "a", First: first, Last: last, Before: first, Read: read, Written: written,
		Replaced: int64(read) * 1000, Time: int64(max(read, written)) * 1000,
	}
}

// offset returns a load of tag a that begins above the mark that it read, in a new era.
func offset(first, last, before int64, read, written uint64) Load {
	l := got(first, last, read, written)
	l.Before = before
	return l
}

// wrote returns a write of the mark of tag a that granted nothing.
func wrote(how string, before, after int64, read, written uint64) Write {
	return Write{
		Tag: "a", How: how, Before: before, After: after, Read: read, Written: written,
		Replaced: int64(read) * 1000, Time: int64(max(read, written)) * 1000,
	}
}

// at returns an entry that was stored at a second.
func at(second int64, b Batch) timed { return timed{second * 1000, b} }

type timed struct {
	ms int64
	Batch
}

// A scene is entries, and the marks as they are at the end.
type scene struct {
	entries []timed
	past    int // so many entries were stored before the marks were read; 0 for all
	present *row
	whole   bool
	unread  string

	founding  string // era
	era       string // the present one
	effective int64  // the mark in it; 0 if that is as it was written
	presentAt int64  // when the present mark was written, Unix ms; 0 if its revision says that
}

// present returns the mark of tag a as it is at the end.
func present(mark int64, revision uint64) *row { return &row{before: mark, read: revision} }

// judged returns the tally of a scene, the unproven findings, and how many IDs are held.
func judged(t *testing.T, s scene) string {
	t.Helper()
	a := NewAudit("")
	defer a.Close()
	a.Whole, a.Unread, a.Founding = s.whole, s.unread, s.founding
	for i, e := range s.entries {
		if err := a.Add(At{uint64(i + 1), time.UnixMilli(e.ms)}, &e.Batch); err != nil {
			t.Fatal(err)
		}
		if s.past == 0 || i < s.past {
			a.MarksNow()
		}
	}
	if p := s.present; p != nil {
		at := time.UnixMilli(cmp.Or(s.presentAt, int64(p.read)*1000))
		if err := a.Point("a", s.era, p.before, cmp.Or(s.effective, p.before), p.read, at); err != nil {
			t.Fatal(err)
		}
	}
	var says []string
	err := a.Judge(func(f Finding) {
		if strings.HasPrefix(f.What, "tag ") && f.Kind != Repeated {
			says = append(says, f.String())
		}
	}, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	of := a.OfTags
	outcome := fmt.Sprintf("%d proven", of.Proven)
	switch {
	case of.Repeated > 0:
		outcome = "repeated"
	case of.NotProven > 0:
		outcome = "not proven"
	}
	if a.Held > 0 {
		outcome += fmt.Sprintf(", %d held", a.Held)
	}
	if a.Resumed > 0 {
		outcome += fmt.Sprintf(", %d resumed", a.Resumed)
	}
	return strings.TrimSpace(outcome + "\n" + strings.Join(says, "\n"))
}

func TestAChainIsProvenOnlyWithoutAMissingLink(t *testing.T) {
	created := at(1, by("A1", 1, wrote("create", 0, 1, 0, 1)))
	late := at(5000, by("A1", 2, "end")) // of a process that wrote down all
	for name, tc := range map[string]struct {
		scene
		want string // how the outcome begins
	}{
		"two workers by turns": {scene{entries: []timed{
			at(4, by("A1", 1, wrote("create", 0, 1, 0, 1), got(1, 100, 1, 2), got(201, 300, 3, 4), "end")),
			at(5, by("B1", 1, got(101, 200, 2, 3), got(301, 400, 4, 5), "end")),
		}, present: present(401, 5), whole: true}, "1 proven"},
		"entries out of order": {scene{entries: []timed{
			at(5, by("B1", 1, got(101, 200, 2, 3), "end")),
			at(6, by("A1", 1, wrote("create", 0, 1, 0, 1), got(1, 100, 1, 2), "end")),
		}, present: present(201, 3), whole: true}, "1 proven"},
		"IDs that a load leaves out above the mark": {scene{entries: []timed{
			at(4, by("A1", 1, wrote("create", 0, 1, 0, 1), "end",
				Load{Tag: "a", First: 501, Last: 600, Before: 1, Read: 1, Written: 2})),
		}, present: present(601, 2)}, "1 proven"},
		"a load that the first mark was made for": {scene{entries: []timed{
			at(4, by("A1", 1, Load{Tag: "a", First: 501, Last: 600, Written: 2}, "end")),
		}, present: present(601, 2), whole: true}, "1 proven"},
		"a raise, a deletion and a revival": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2), wrote("raise", 101, 5001, 2, 3), got(5001, 5100, 3, 4),
			wrote("delete", 5101, 5101, 4, 5), wrote("revive", 5101, 9001, 5, 6), got(9001, 9100, 6, 7), "end"))},
			present: present(9101, 7)}, "1 proven"},

		"a load of a worker that was killed": {scene{entries: []timed{created,
			at(3, by("B1", 1, got(101, 200, 2, 3), "end"))}, present: present(201, 3)}, "1 proven, 100 held"},
		"loads of a worker that was killed, and is the last one": {scene{entries: []timed{created},
			present: present(301, 4), whole: true}, "1 proven, 300 held"},
		"a load of a worker that stopped cleanly": {scene{entries: []timed{created,
			at(3, by("B1", 1, got(101, 200, 2, 3), "end")), at(4, by("A1", 2, "end"))}, present: present(201, 3)},
			"not proven\nIDs 1-100 are in no grant: a write before revision 2 is missing, and no worker"},
		"and of one that was killed later": {scene{entries: []timed{created,
			at(3, by("B1", 1, got(101, 200, 2, 3), "end")), at(5000, by("A1", 2))}, present: present(201, 3)},
			"not proven\nIDs 1-100 are in no grant"},
		"and of one that was killed long before": {scene{entries: []timed{
			at(1, by("A1", 1, wrote("create", 0, 1, 0, 1))),
			at(1000, by("B1", 1, got(1, 100, 1, 1000), got(201, 300, 1002, 1003), "end"))},
			present: present(301, 1003)}, "not proven\nIDs 101-200 are in no grant"},
		"but for the window of that": {scene{entries: []timed{
			at(1, by("A1", 1, wrote("create", 0, 1, 0, 1), win(1000, 1_100_000, "acquired"))),
			at(1000, by("B1", 1, got(1, 100, 1, 1000), got(201, 300, 1002, 1003), "end"))},
			present: present(301, 1003)}, "1 proven, 100 held"},
		"grants that were lost": {scene{entries: []timed{created, at(3, by("A1", 2, "lost")),
			at(4, by("A1", 3, got(101, 200, 2, 3), "end"))}, present: present(201, 3)},
			"not proven\nIDs 1-100 are in no grant"},
		"an entry that is missing": {scene{entries: []timed{created,
			at(4, by("A1", 3, got(101, 200, 2, 3), "end"))}, present: present(201, 3)},
			"not proven\nIDs 1-100 are in no grant"},

		"a mark that was put back below a grant": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2), Load{Tag: "a", First: 101, Last: 200, Before: 1, Read: 5, Written: 6}, "end"))},
			present: present(201, 6)},
			"not proven\nIDs from 1 on may be in a load that nobody wrote down: the mark was put back from 101 to 1"},
		"a mark that was put back, of which IDs were granted twice": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2), "end")), at(9, by("B1", 1, got(1, 100, 5, 6), "end"))}, present: present(101, 6)},
			"repeated\nIDs from 1 on may be in a load that nobody wrote down: the mark was put"},
		"a mark that was put back, of which one discarded its IDs": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2), drop("a", 1, 100), "end")), at(9, by("B1", 1, got(1, 100, 5, 6), "end"))},
			present: present(101, 6)},
			"not proven\nIDs from 1 on may be in a load that nobody wrote down: the mark was put"},
		"a mark that was put back over a load that nobody wrote down": {scene{entries: []timed{created,
			at(9, by("B1", 1, got(1, 100, 5, 6), "end"))}, present: present(101, 6)},
			"not proven\nIDs from 1 on may be in a load that nobody wrote down: a write before revision 5"},
		"and over the creation too": {scene{entries: []timed{at(1, by("A1", 1)),
			at(9, by("B1", 1, got(1, 100, 5, 6), "end"))}, present: present(101, 6)},
			"not proven\nIDs from 1 on may be in a load that nobody wrote down: the write of revision 5"},
		"and by a worker that wrote nothing": {scene{entries: []timed{at(9, by("B1", 1, got(1, 100, 5, 6), "end"))},
			present: present(101, 6), whole: true},
			"not proven\nIDs from 1 on may be in a load that nobody wrote down: the write of"},
		"a mark that was put back and is at present": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2), "end"))},
			present: present(1, 5)}, "not proven\nIDs from 1 on may be in a load that nobody wrote down: the mark"},
		"a mark that was put back to the same value": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2), "end"))},
			present: present(101, 5)}, "not proven\nIDs from 101 on may be in a load that nobody wrote down: a write"},
		"a mark that another mark has at its revision": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2), "end"))},
			present: present(1, 2)}, "not proven\nIDs from 1 on may be in a load that nobody wrote down: revision 2"},
		"marks that went back to an earlier revision": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2), got(101, 200, 2, 3), "end"))}, present: present(101, 2)},
			"not proven\nIDs from 101 on may be in a load that nobody wrote down: the mark is 101 now"},
		"a later write that is not the next one": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2), got(301, 400, 4, 5)))}, present: present(101, 2)},
			"not proven, 200 held\nIDs from 101 on may be in a load that nobody wrote down: the mark is 101 now"},
		"and a load after that": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2), got(101, 200, 2, 3), drop("a", 101, 200), "end")),
			at(9, by("B1", 1, got(101, 200, 2, 4), "end"))},
			present: present(201, 4)},
			"not proven\nIDs from 101 on may be in a load that nobody wrote down: revision 2 was"},
		"a bucket that was made again": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2), wrote("create", 0, 1000, 0, 7), got(1000, 1099, 7, 8), "end"))},
			present: present(1100, 8)},
			"not proven\nIDs from 1000 on may be in a load that nobody wrote down: the mark was 101, and"},
		"a tag whose entry was removed": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2), "end"))}},
			"not proven\nIDs from 101 on may be in a load that nobody wrote down: the tag has no mark"},
		"marks that cannot be read": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2), "end"))}, unread: "no answer"},
			"not proven\nIDs from 101 on may be in a load that nobody wrote down: the present mark is not"},
		"a present mark that no worker explains": {scene{entries: []timed{created, late}, present: present(501, 2)},
			"not proven\nIDs 1-500 are in no grant"},
		"two faults": {scene{entries: []timed{created, at(9, by("A1", 2, got(11, 20, 2, 3), got(31, 40, 4, 5), "end"))},
			present: present(41, 5)},
			"not proven\nIDs 1-10 are in no grant: a write before revision 2 is missing, and no worker " +
				"was killed about then; and 1 more such places"},

		"loads that were written down after the marks were read": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2))), at(11, by("A1", 3, got(101, 200, 2, 10)))}, past: 2,
			present: present(101, 2)}, "1 proven"},
		"and before": {scene{entries: []timed{created, at(9, by("A1", 2,
			got(1, 100, 1, 2))), at(11, by("A1", 3, got(101, 200, 2, 10)))}, present: present(101, 2)},
			"not proven\nIDs from 101 on may be in a load that nobody wrote down: the mark is 101 now"},

		"a hole that landed": {scene{entries: []timed{created, at(9, by("A1", 2, wrote("load", 1, 101, 1, 0),
			got(101, 200, 2, 3), "end"))}, present: present(201, 3)}, "1 proven"},
		"a hole that did not land": {scene{entries: []timed{created, at(9, by("A1", 2, wrote("load", 1, 101, 1, 0),
			got(1, 200, 1, 3), "end"))}, present: present(201, 3)}, "1 proven"},
		"holes of several workers, of which one landed, and another then": {scene{entries: []timed{created,
			at(9, by("A1", 2, wrote("load", 1, 101, 1, 0), wrote("load", 1, 51, 1, 0), "end")),
			at(9, by("B1", 1, wrote("load", 51, 81, 2, 0), wrote("load", 51, 61, 2, 0), got(61, 70, 3, 4), "end"))},
			present: present(71, 4)}, "1 proven"},
		"a hole at the end": {scene{entries: []timed{created, at(9, by("A1", 2, wrote("load", 1, 101, 1, 0), "end"))},
			present: present(101, 3)}, "1 proven"},
		"a hole long ago, and a mark that was put back to its end": {scene{entries: []timed{created, at(9, by("A1", 2,
			wrote("load", 1, 101, 1, 0), "end"))},
			present: present(101, 300)}, "not proven\nIDs 1-100 are in no grant"},
		"a hole that explains another gap": {scene{entries: []timed{created, at(9, by("A1", 2,
			wrote("load", 1, 101, 1, 0), got(201, 300, 2, 3), "end"))}, present: present(301, 3)},
			"not proven\nIDs 1-200 are in no grant"},
		"a hole that was granted": {scene{entries: []timed{created, at(9, by("A1", 2, wrote("load", 1, 101, 1, 0),
			got(1, 100, 1, 2), "end"))}, present: present(101, 2)}, "1 proven"},
		"a hole whose revision is known, that was granted": {scene{entries: []timed{created, at(9, by("A1", 2,
			wrote("load", 1, 101, 1, 2), got(1, 100, 1, 2), "end"))}, present: present(101, 2)}, "1 proven"},
		"a hole that was granted, of which others have replaced the revision": {scene{entries: []timed{created,
			at(9, by("A1", 2, wrote("load", 1, 101, 1, 0), got(1, 100, 1, 0), "end")),
			at(9, by("B1", 1, got(101, 200, 2, 3), "end"))}, present: present(201, 3)}, "1 proven"},
		"a hole that is the start of a strict load": {scene{entries: []timed{created, at(9, by("A1", 2,
			wrote("load", 1, 11, 1, 0),
			Load{Tag: "a", First: 1, Last: 20, Before: 11, Read: 2, Written: 3}, "end"))}, present: present(21, 3)},
			"1 proven"},
		"a creation that may have failed": {scene{entries: []timed{
			at(9, by("A1", 2, wrote("create", 0, 1, 0, 0), "end")), at(9, by("B1", 1, got(1, 100, 7, 8), "end"))},
			present: present(101, 8), whole: true}, "1 proven"},
		"a creation that has failed": {scene{entries: []timed{
			at(9, by("A1", 2, wrote("create", 0, 1, 0, 0), "end"))}}, "1 proven"},
		"a change of the step that may have failed": {scene{entries: []timed{created, at(9, by("A1", 2,
			wrote("update", 1, 1, 1, 0), got(1, 100, 2, 3), "end"))}, present: present(101, 3)}, "1 proven"},

		"a tag that is older than what is kept": {scene{entries: []timed{at(50, by("A1", 7, got(101, 200, 20, 50))),
			at(51, by("A1", 8, got(201, 300, 50, 51), "end"))}, present: present(301, 51)}, "1 proven"},
		"though the stream has all entries, says the caller": {scene{entries: []timed{
			at(50, by("A1", 1, got(101, 200, 20, 50))), at(51, by("A1", 2, got(201, 300, 50, 51), "end"))},
			present: present(301, 51), whole: true},
			"not proven\nIDs from 101 on may be in a load that nobody wrote down: the write of revision 20"},
		"a write that was forgotten, as it was stored before those that are kept": {scene{entries: []timed{
			at(50, by("A1", 7, got(101, 200, 20, 30), got(301, 400, 40, 50), "end"))},
			present: present(401, 50)}, "1 proven"},
		"a tag that is not used": {scene{entries: []timed{at(50, by("A1", 7, "end"))}, present: present(401, 49)},
			"0 proven"},

		"marks that went back, and a load above them by the offset": {scene{entries: []timed{created,
			at(9, by("A1", 2, got(1, 100, 1, 2), got(101, 200, 2, 3))),
			at(22, by("B1", 1, "era I", offset(5001, 5100, 101, 2, 4), "end"))}, era: "I", present: present(5101, 4)},
			"1 proven, 1 resumed"},
		"and the grants of before are lost": {scene{entries: []timed{at(9, by("A1", 1, "era A")),
			at(22, by("B1", 1, "era I", offset(5001, 5100, 101, 2, 4), "end"))},
			founding: "A", era: "I", present: present(5101, 4), whole: true}, "1 proven, 1 resumed"},
		"and the first era that is kept is one of a resume": {scene{entries: []timed{
			at(22, by("B1", 1, "era I", offset(5001, 5100, 101, 2, 4), got(5101, 5200, 4, 5), "end"))},
			founding: "A", era: "I", present: present(5201, 5), whole: true}, "1 proven, 1 resumed"},
		"and its bump was too low": {scene{entries: []timed{created,
			at(9, by("A1", 2, got(1, 100, 1, 2), got(101, 200, 2, 3), "end")),
			at(22, by("B1", 1, "era I", offset(151, 250, 101, 2, 4), "end"))}, era: "I", present: present(251, 4)},
			"repeated, 1 resumed\nIDs from 151 on may be in a load that nobody wrote down: it was loaded after a"},
		"and a load in the new era is missing": {scene{entries: []timed{created,
			at(9, by("A1", 2, got(1, 100, 1, 2), "end")), at(5000, by("A2", 1, "era I", "end")),
			at(9000, by("B1", 1, "era I", got(5101, 5200, 8000, 8001), "end"))}, era: "I",
			present: present(5201, 8001)},
			"not proven, 1 resumed\nIDs from 5101 on may be in a load that nobody wrote down: the write of revision"},
		"and the mark was not written since": {scene{entries: []timed{created,
			at(9, by("A1", 2, got(1, 100, 1, 2), got(101, 200, 2, 3), "end"))}, era: "I", present: present(101, 2),
			effective: 5101}, "1 proven, 1 resumed"},
		"and it is too low in the new era": {scene{entries: []timed{created,
			at(9, by("A1", 2, got(1, 100, 1, 2), got(101, 200, 2, 3), "end"))}, era: "I", present: present(101, 2),
			effective: 151}, "not proven, 1 resumed\nIDs from 101 on may be in a load that nobody wrote down: the"},
		"a tag that was created after a resume": {scene{entries: []timed{at(9, by("A1", 1, "era A")),
			at(21, by("B1", 1, "era I", wrote("create", 0, 1, 0, 1), offset(5001, 5100, 1, 1, 2), "end"))},
			founding: "A", era: "I", present: present(5101, 2), whole: true}, "1 proven, 1 resumed"},
		"marks that went back, and loads of before that were known": {scene{entries: []timed{created,
			at(9, by("A1", 2, got(1, 100, 1, 2), "end")),
			at(22, by("B1", 1, got(5001, 5100, 5, 6), "end"))}, present: present(5101, 6)},
			"not proven\nIDs 101-5000 are in no grant"},
		"marks that went back again, and are back to before the resume": {scene{entries: []timed{created,
			at(9, by("A1", 2, got(1, 100, 1, 2))),
			at(22, by("A1", 3, "era I", offset(5001, 5100, 1, 1, 2), "end"))}, era: "J", present: present(1, 1)},
			"not proven, 1 resumed\nIDs from 1 on may be in a load that nobody wrote down: the mark is 1"},
		"an incident in which the marks stayed": {scene{entries: []timed{created,
			at(9, by("A1", 2, got(1, 100, 1, 2))),
			at(22, by("A1", 3, "era I", offset(5001, 5100, 101, 2, 3), "end"))}, era: "I", present: present(5101, 3)},
			"1 proven, 1 resumed"},
		"and nothing was loaded since": {scene{entries: []timed{at(1, by("A1", 1, "era A",
			wrote("create", 0, 1, 0, 1), got(1, 100, 1, 2), "end"))}, founding: "A", era: "I", present: present(101, 2),
			effective: 5101}, "1 proven"},
	} {
		t.Run(name, func(t *testing.T) {
			want := tc.want
			if !strings.Contains(want, "\n") {
				want += "\n"
			}
			if got := judged(t, tc.scene) + "\n"; !strings.HasPrefix(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}
