package kvstore_test

import (
	"encoding/json"
	"testing"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
)

// Version 0.1.0-rc1 takes an entry whose mark and step are above 0, and writes it without the fields that it does not
// know.
func TestAVersionWithoutRulesRefusesATagThatHasSome(t *testing.T) {
	streams := buckets.OnJetStream(natstest.JetStream(t, natstest.Start(t)))
	s := kvstore.New(streams, kvstore.Config{Bucket: "marks"})
	for tag, rules := range map[string]segment.Rules{"plain": {}, "ruled": {Max: 100}} {
		if _, err := s.Create(t.Context(), segment.Tag{Name: tag, Step: 10, MaxID: 1, Rules: rules}, true); err != nil {
			t.Fatal(err)
		}
		l, err := s.Load(t.Context(), tag, 1, 0)
		if err != nil || l.Step != 10 || l.Len() != 10 || l.Rules != rules {
			t.Errorf("%s: %+v, %v", tag, l, err)
		}
		entry, err := streams.Last(t.Context(), "marks", tag)
		if err != nil {
			t.Fatal(err)
		}
		var old struct{ Mark, Step int64 }
		if err := json.Unmarshal(entry.Value, &old); err != nil || (old.Step >= 1) != (tag == "plain") {
			t.Errorf("%s: that version reads %+v, %v", tag, old, err)
		}
	}
}
