package buckets

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// FuzzAnswer guards what JetStream's interface answers: an entry has a revision, and a refusal is never an entry.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", `{"error":{"code":404,"err_code":10037,"description":"no message found"}}`, `{"error":null}`,
		`{"message":{"subject":"$KV.b.k","seq":7,"data":"e30=","time":"2026-01-02T03:04:05Z"}}`,
		`{"message":{"seq":7,"hdrs":"TkFUUy8xLjANCktWLU9wZXJhdGlvbjogREVMDQoNCg=="}}`,
		`{"message":{"seq":7,"hdrs":"TkFUUw=="}}`, `{"message":{"seq":-1}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var refusal struct {
			Error *jetstream.APIError `json:"error"`
		}
		a, err := decode(data)
		if err != nil {
			return
		}
		if e, err := a.entry("b"); err == nil && e.Revision == 0 {
			t.Fatalf("%q reads as %+v", data, e)
		}
		if json.Unmarshal(data, &refusal) == nil && refusal.Error != nil {
			t.Fatalf("%q refuses, and was read as %+v", data, a)
		}
	})
}

// FuzzMissingRight guards what is read from the text of an error that a server sent.
func FuzzMissingRight(f *testing.F) {
	f.Add(`Permissions Violation for Publish to "id.news"`)
	f.Add(`permissions violation for subscription to "id.>" using queue "natsid"`)
	f.Fuzz(func(t *testing.T, text string) {
		r := MissingRight(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, text))
		if r != nil && r.Subject == "" {
			t.Fatalf("%q lacks a right on nothing", text)
		}
	})
}
