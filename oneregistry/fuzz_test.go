package oneregistry

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

var notices = []string{
	"", "{}", "null", `[]`, `{"registry":"R","process":"P"}`, `{"registry":"R.*","process":"P"}`,
	`{"registry":"R","segments":"R","numbers":"N","workers":3,"made":"2026-01-02T03:04:05Z","pinned":true,` +
		`"layout":"41/10/12","epoch":1,"unit":1,"instance":"a","process":"P","fresh":true,"settled":true}`,
	`{"registry":"N","numbers":"N","yields":"R","merged":true,"workers":-1,"process":"P"}`,
	`{"registry":"` + strings.Repeat("R", 129) + `","process":"P"}`,
}

// FuzzNotice guards that a notice which anyone may have sent names registries by tokens of a subject, and that of two
// registries exactly one stays.
func FuzzNotice(f *testing.F) {
	for _, a := range notices {
		f.Add([]byte(a), []byte(notices[6]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		n, err := parseNotice(a)
		if err != nil {
			return
		}
		for _, id := range []string{n.ID, n.Segments, n.Numbers, n.Yields} {
			if strings.ContainsAny(id, ".*> \t\r\n") {
				t.Fatalf("%q names the registry %q", a, id)
			}
		}
		if again, err := parseNotice(encode(n)); err == nil && !reflect.DeepEqual(encode(again), encode(n)) {
			t.Fatalf("%+v reads as %+v", n, again)
		}
		o, err := parseNotice(b)
		if err == nil && n.ID != o.ID && n.Outranks(o) == o.Outranks(n) {
			t.Fatalf("neither or both stay: %+v, %+v", n, o)
		}
	})
}

// FuzzReply guards what asks other registries: a reply without error has a notice that may be believed.
func FuzzReply(f *testing.F) {
	for _, text := range append(notices, `{"error":"x"}`, `{"notice":`+notices[6]+`,"live":[1],"spans":[{}]}`) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := parseReply(data); err == nil && r.Notice.check() != nil {
			t.Fatalf("parseReply(%q) = %+v", data, r)
		}
		var c call
		if json.Unmarshal(data, &c) == nil {
			_ = encode(c) // must not panic: it is passed on
		}
	})
}
