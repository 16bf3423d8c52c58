package client

import (
	"testing"

	"github.com/natsid/natsid/subjects"
)

// FuzzReply guards the result of a caller: a reply to a request for n IDs holds n, none of them twice, or is refused.
// Anyone may answer on a subject.
func FuzzReply(f *testing.F) {
	for _, body := range []string{
		"1001", "1001-1100", "1-2\n5\n7-9", "0", "9223372036854775807", "5-9\n9-12", "1-9223372036854775807",
		"", "\n", "7\n7", "0-9223372036854775807\n0-9223372036854775807\n7", `{"stream":"X","seq":1}`,
	} {
		f.Add([]byte(body), uint16(100))
		f.Add([]byte(body), uint16(1))
	}
	f.Fuzz(func(t *testing.T, body []byte, n uint16) {
		runs, err := parseRuns(body, int(n))
		if err != nil {
			return
		}
		seen := make(map[subjects.ID]bool, n)
		for id := range runs.All() {
			if id < 1 || seen[id] {
				t.Fatalf("%q to a request for %d IDs: %d is none, or came twice", body, n, id)
			}
			seen[id] = true
		}
		if len(seen) != int(n) || runs.Len() != int(n) {
			t.Fatalf("%q holds %d IDs, %d were requested", body, len(seen), n)
		}
	})
}

// FuzzRefusal guards that a reply with a code is an error, and one without is none.
func FuzzRefusal(f *testing.F) {
	f.Add("429", "slow down", "100", "50")
	f.Add("x", "", "-1", "99999999999999999999")
	f.Add("", "text", "1", "1")
	f.Fuzz(func(t *testing.T, code, text, most, after string) {
		e := subjects.ParseError(map[string][]string{
			subjects.HeaderErrorCode: {code}, subjects.HeaderError: {text},
			subjects.HeaderMaxBatch: {most}, subjects.HeaderRetryAfter: {after},
		})
		if (e == nil) != (code == "") {
			t.Fatalf("code %q: %v", code, e)
		}
		if e != nil && (e.MaxBatch < 0 || e.RetryAfter < 0 || refusal(e) == nil) {
			t.Fatalf("code %q, %q, %q: %+v", code, most, after, e)
		}
	})
}
