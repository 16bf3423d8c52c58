package lineage

import (
	"slices"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/registry/buckets"
)

// Anyone may send a notice.
func FuzzNotice(f *testing.F) {
	f.Add(encode(Notice{Registry: "R", Era: "E", Out: "O", Instance: "i", Process: "p"}))
	f.Add([]byte(`{"registry":"a b","process":"p"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := parseNotice(data)
		if err != nil {
			return
		}
		if n.Process == "" || n.Registry != "" && !IsID(n.Registry) || n.Out != "" && !IsID(n.Out) {
			t.Fatalf("%q reads as %+v", data, n)
		}
		if again, err := parseNotice(encode(n)); len(encode(n)) <= maxNotice && (err != nil || again != n) {
			t.Fatalf("%q reads as %+v, and then as %+v, %v", data, n, again, err)
		}
	})
}

func TestANoticeThatNoWorkerSendsIsNotHeard(t *testing.T) {
	good := Notice{Registry: "R", Process: "p"}
	for what, change := range map[string]func(*Notice){
		"no process": func(n *Notice) { n.Process = "" }, "a long process": func(n *Notice) {
			n.Process = strings.Repeat("p", maxName+1)
		},
		"a registry that is no token": func(n *Notice) { n.Registry = "a.b" },
		"an out that is no token":     func(n *Notice) { n.Out = "*" },
		"a long name":                 func(n *Notice) { n.Instance = strings.Repeat("i", maxName+1) },
	} {
		n := good
		change(&n)
		if _, err := parseNotice(encode(n)); err == nil {
			t.Errorf("%s is heard", what)
		}
	}
	if _, err := parseNotice([]byte(strings.Repeat(" ", maxNotice) + string(encode(good)))); err == nil {
		t.Error("a notice of any length is heard")
	}
	if _, err := parseNotice(encode(good)); err != nil {
		t.Error(err)
	}
}

// A plan whose parts are not as the identity names them was taken away by a restore.
func TestAPlanIsReadWholeOrNotAtAll(t *testing.T) {
	raises := make([]Raise, 2*raisesInPart+1)
	for n := range raises {
		raises[n] = Raise{Tag: strings.Repeat("t", n%7+1), From: int64(n), To: int64(n + 5)}
	}
	plan, parts := partsOf(raises)
	if got, err := plan.read(parts); err != nil || len(parts) != 3 || len(got) != len(raises) || got[7] != raises[7] {
		t.Errorf("%d parts, %d raises, %v", len(parts), len(got), err)
	}
	other := slices.Clone(parts)
	other[1].Value = encode([]Raise{{Tag: "x"}})
	for what, of := range map[string][]buckets.Entry{
		"one is missing": parts[:2], "one is another": other, "none": nil,
	} {
		if _, err := plan.read(of); err == nil {
			t.Errorf("%s, and the plan is read", what)
		}
	}
}
