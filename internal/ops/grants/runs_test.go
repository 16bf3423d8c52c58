package grants

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
)

func TestALossOfOneProcessIsProvenAndNothingElse(t *testing.T) {
	first, next := by("A1", ids(1, 100)), by("B1", after("A1", 1, 201, ids(201, 300)))
	for _, tc := range []struct {
		name    string
		mark    Mark
		entries []Entry
		want    string
	}{
		{"a kill before the first record", at(301), []Entry{by("A2", after("A1", 1, 201, ids(201, 300)))},
			"lost 1-200"},
		{"a kill within a second of a load", at(301), []Entry{first, next}, "lost 101-200"},
		{"of a tag that was made with its first load", at(301), []Entry{by("A1", above(1, 1, 100)), next},
			"lost 101-200"},
		{"two of one worker", at(301), []Entry{first, by("A2", after("A1", 1, 151, ids(151, 200))),
			by("A3", after("A2", 151, 251, ids(251, 300)))}, "lost 101-150, lost 201-250"},
		{"nobody has loaded since", Mark{Raw: 201, Shown: 201, Run: segment.Run{By: "A1", From: 101, To: 201}},
			[]Entry{first, by("B1")}, "lost 101-200"},
		{"nor resumed", Mark{Raw: 201, Shown: 1e9 + 201, Run: segment.Run{By: "A1", From: 101, To: 201}},
			[]Entry{first, by("B1")}, "lost 101-200"},
		{"nobody is known", at(301), []Entry{first, by("B1", ids(201, 300))}, "not proven 101-200"},
		{"only the last is known", at(301), []Entry{first, by("B1", after("C1", 151, 201, ids(201, 300)))},
			"not proven 101-150, lost 151-200"},
		{"each is known", at(301), []Entry{first, by("D1", after("A1", 1, 151, raise(151, 152))),
			by("B1", after("C1", 152, 201, ids(201, 300)))}, "lost 101-150, lost 152-200"},
		{"the record comes late", at(301), []Entry{first, next, by("A1", ids(101, 200))}, ""},
		{"a part of it does", at(301), []Entry{first, next, by("A1", ids(101, 120))}, "lost 121-200"},
		{"two found it", at(301), []Entry{first, by("C1", after("A1", 1, 201, raise(201, 301))), next}, "lost 101-200"},
		{"one before it grew", at(301), []Entry{first, by("C1", after("A1", 1, 151, raise(151, 161))), next},
			"lost 101-150, lost 161-200"},
		{"above a raise", at(1301), []Entry{first, by("B1", after("A1", 1, 201, above(201, 1201, 1300)))},
			"lost 101-200"},
		{"of marks that went back", at(301), []Entry{first, next, by("C1", after("B1", 101, 151, raise(151, 152)))},
			"not proven 101-150, lost 152-200"},
		{"and further", at(301), []Entry{first, next, by("C1", after("B1", 1, 251, raise(251, 252)))},
			"not proven 101-200"},
		{"of marks that were resumed", at(1101), []Entry{first, next, by("B1", above(301, 1001, 1100))},
			"lost 101-200"},
		{"and had gone back, so that not all runs are known", at(1101), []Entry{first, next,
			by("B1", above(251, 1001, 1100))}, "not proven 101-200"},
		{"above the mark that was read", at(101), []Entry{first, by("B1", after("A1", 1, 301, ids(301, 400)))}, ""},
	} {
		past := len(tc.entries)
		if strings.Contains(tc.name, "that was read") {
			past = 1
		}
		if got := strings.Join(judged(past, true, tc.mark, tc.entries...), ", "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	cut := []Entry{by("A1", ids(51, 100)), by("B1"), by("B1"), next}
	if got := judged(99, false, at(301), cut...); !slices.Equal(got, []string{"lost 101-200"}) {
		t.Errorf("with a log that is cut: %q", got)
	}
}

// One worker of a fleet may have no records for long: its writes fail, or it has --grants off.
func TestAnAuditOfManyRunsWithoutRecordsEnds(t *testing.T) {
	const loads = 10_000
	h, began := History{Whole: true, Past: loads}, time.Now()
	for i := range int64(loads) {
		e := by("B1", after("A1", 20*i+1, 20*i+11, ids(20*i+11, 20*i+20)))
		e.Entry, e.N = uint64(i+1), uint64(i+1)
		h.Add(&e)
	}
	all := h.Judge(map[string]Mark{"a": at(20*loads + 1)})
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	if len(all) != loads || all[0].Verdict != Lost {
		t.Errorf("%d findings, want %d losses", len(all), loads)
	}
}
