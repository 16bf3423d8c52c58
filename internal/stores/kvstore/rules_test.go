package kvstore_test

import (
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
)

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
