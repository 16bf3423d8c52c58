package aside

import (
	"strings"
	"testing"
)

// FuzzHear guards that only a report of the same kind and registry counts: a worker that relies on another one leaves.
func FuzzHear(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", `{"version":1,"says":"I can load","registry":"R","store":"kv","process":"P"}`,
		`{"version":1,"says":"I can load","store":"kv","process":"P"}`,
		`{"version":1,"says":"who can load","store":"kv","process":"P","to":"me"}`,
		`{"version":1,"says":"I can load","registry":"other","store":"kv"}`, strings.Repeat("x", maxMessage+1),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w := New(Config{Process: "me", Kind: "kv", Registry: func() string { return "R" }})
		w.Hear(body)
		select {
		case m := <-w.heard:
			if m.Kind != "kv" || m.Process == "me" || m.Registry != "R" && (m.Registry != "" || m.Says != asks) {
				t.Fatalf("%q was heard as %+v", body, m)
			}
		default:
		}
	})
}
