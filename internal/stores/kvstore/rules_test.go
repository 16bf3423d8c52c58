package kvstore_test

import (
	"encoding/json"
	"testing"
	"time"

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

// A tag that the bucket lost is lifted by a worker that knows it.
func TestALiftOfAMissingTagKeepsItsRules(t *testing.T) {
	js, bucket := connect(t), bucketName()
	s := open(t, js, bucket)
	create(t, s, segment.Tag{Name: "so", Step: 10, MaxID: 1, Rules: segment.Rules{Period: segment.Daily, Max: 50}})
	a := segment.New(segment.Config{Store: s, Deadline: time.Second})
	defer a.Close()
	if _, err := a.Take(t.Context(), "so", 1); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), "so"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lift(t.Context(), "so", a.Floors()["so"]); err != nil {
		t.Fatal(err)
	}
	got, err := s.Look(t.Context(), "so")
	if err != nil || got.Rules.Period != segment.Daily || got.Rules.Max != 50 {
		t.Errorf("after the lift the tag is %+v, %v; it was daily, up to 50 a day", got, err)
	}
}
