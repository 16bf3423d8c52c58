package grants

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/workerid"
)

func TestALossOfOneDeadProcessIsProvenAndNothingElse(t *testing.T) {
	late := func(e Entry) Entry { e.Late = true; return e }
	end := func(e Entry) Entry { e.End = true; return e }
	join := func(all ...[]Entry) []Entry { return slices.Concat(all...) }
	hours := slices.Repeat([]Entry{by("B1")}, 80) // entries are 50 s apart
	first, next := by("A1", ids(1, 100)), by("B1", ids(201, 300))
	for _, tc := range []struct {
		name    string
		entries []Entry
		want    string
	}{
		{"a kill before the first record", []Entry{by("A1"), by("A2", ids(201, 300))}, "lost 1-200"},
		{"a kill within a second of a load", []Entry{first, next, by("A2")}, "lost 101-200"},
		{"two of one worker", []Entry{first, by("A2", ids(151, 200)), by("A3", ids(251, 300))},
			"lost 101-150, lost 201-250"},
		{"nobody died", []Entry{first, next}, "not proven 101-200"},
		{"nobody died, and all have entries since", []Entry{first, next, by("A1")}, "not proven 101-200"},
		{"nobody is known", []Entry{next}, "not proven 1-200"},
		{"one that is not started again, while its window lasts", []Entry{by("A1", win("acquired", 0, 120_000)),
			first, next}, "not proven 101-200"},
		{"and after it", []Entry{by("A1", win("acquired", 0, 120_000)), first, next, by("B1")}, "lost 101-200"},
		{"two died", []Entry{by("C1"), first, next, by("A2"), by("C2")}, "not proven 101-200"},
		{"another one has no entry since", []Entry{by("C1"), first, next, by("A2")}, "not proven 101-200"},
		{"it has", []Entry{by("C1"), first, next, by("A2"), by("C1")}, "lost 101-200"},
		{"a late one, which may end before", []Entry{by("C1"), first, next, by("A2"), late(by("C1"))},
			"not proven 101-200"},
		{"a write failed since", []Entry{first, next, by("B1", Raise(51, 101)), by("A2")}, "lost 101-200"},
		{"another one stopped", []Entry{end(by("C1")), first, next, by("A2")}, "lost 101-200"},
		{"it died before", []Entry{by("C1"), by("C2"), first, next, by("A2"), by("C2")}, "lost 101-200"},
		{"perhaps before", []Entry{by("C1"), by("C2"), late(first), next, by("A2"), by("C2")}, "not proven 101-200"},
		{"it died after the write before", []Entry{by("C1"), by("A1", Raise(1, 101)), by("C2"), first, next, by("A2"),
			by("C2")}, "not proven 101-200"},
		{"it died long ago", join([]Entry{by("C1", win("acquired", 0, 1))}, hours, []Entry{first, next, by("A2")}),
			"lost 101-200"},
		{"it died not long ago", []Entry{by("C1", win("acquired", 0, 1)), first, next, by("A2")},
			"not proven 101-200"},
		{"it is away as long as a window may be", join([]Entry{by("C1", win("acquired", 0, 1)),
			by("B1", workerid.Window{Number: 6, Until: 1e8})}, hours, []Entry{first, next, by("A2")}),
			"not proven 101-200"},
	} {
		if got := strings.Join(judged(99, true, at(301), tc.entries...), ", "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	for replaced, want := range map[int64]string{251: "not proven 101-200", 301: "lost 101-200"} { // by a resume
		resumed := by("B1", above(replaced, 1001, 1100))
		got := judged(99, true, at(1101), by("C1"), first, next, by("A2"), by("C1"), by("C2"), resumed)
		if !slices.Equal(got, []string{want}) {
			t.Errorf("the mark was %d: %q, want %s", replaced, got, want)
		}
	}
	mark := Mark{Raw: 201, Shown: 201, At: time.Unix(55, 0)} // nobody has loaded since
	for name, tc := range map[string]struct {
		entries []Entry
		want    string
	}{
		"an entry since":    {[]Entry{first, by("B1"), by("A2"), by("B1")}, "lost 101-200"},
		"an entry just now": {[]Entry{first, by("B1"), by("A2")}, "not proven 101-200"},
	} {
		if got := strings.Join(judged(99, true, mark, tc.entries...), ", "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	old, rest := []Entry{by("A1", ids(-99, 0)), by("B1"), by("B1")}, []Entry{first, next, by("A2")}
	if got := judged(99, false, at(301), join(old, rest)...); !slices.Equal(got, []string{"not proven 101-200"}) {
		t.Errorf("soon after the cut: %q", got)
	}
	if got := judged(99, false, at(301), join(old, hours, rest)...); !slices.Equal(got, []string{"lost 101-200"}) {
		t.Errorf("long after the cut: %q", got)
	}
	var h History
	h.Whole, h.Past = true, 2
	for i, e := range []Entry{by("A1"), by("A2", ids(201, 300))} {
		e.Sequence = uint64(i + 1)
		h.Add(&e)
	}
	if all, _, _ := h.Judge(Scope{Missing: 1}, map[string]Mark{"a": at(301)}); len(all) != 2 ||
		all[0].Verdict != NotProven || all[1].Verdict != NotProven {
		t.Errorf("with a missing entry: %+v", all)
	}
}
