package standby

import (
	"strings"
	"testing"
)

// FuzzAnswer guards that only an answer of another worker of the same kind and registry counts: a worker that relies on
// an answer leaves.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", `{"version":1,"can_load":true,"registry":"R","store":"kv","process":"P"}`,
		`{"version":1,"can_load":true,"store":"kv","process":"P"}`, `+ACK {"stream":"X","seq":1}`,
		`{"version":1,"can_load":true,"registry":"R","store":"kv","process":"me"}`,
		`{"version":1,"can_load":true,"registry":"other","store":"kv"}`, strings.Repeat("x", maxMessage+1),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w := New(Config{Process: "me", Kind: "kv", Registry: func() string { return "R" }})
		m, valid := w.parse(body)
		same := m.Registry == "R" || m.Registry == ""
		if valid && (m.Version != version || m.Kind != "kv" || m.Process == "me" || !same) {
			t.Fatalf("%q is taken for %+v", body, m)
		}
	})
}
