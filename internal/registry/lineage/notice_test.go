package lineage

import (
	"strings"
	"testing"
)

// Anyone may send a notice.
func FuzzNotice(f *testing.F) {
	f.Add(encode(Notice{Registry: "R", Era: "E", Other: "O", Instance: "i", Process: "p"}))
	f.Add([]byte(`{"registry":"a b","process":"p"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := parseNotice(data)
		if err != nil {
			return
		}
		if n.Process == "" || n.Registry != "" && !IsID(n.Registry) || n.Other != "" && !IsID(n.Other) {
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
		"another that is no token":    func(n *Notice) { n.Other = "*" },
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
