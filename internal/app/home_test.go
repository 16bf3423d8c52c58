package app

import (
	"testing"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/oneregistry"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/kvstore"
)

func TestAMergeWhoseReplyWasLostStillListsWhatWasGivenTwice(t *testing.T) {
	streams := buckets.OnJetStream(natstest.JetStream(t, natstest.Start(t)))
	store := kvstore.New(streams, kvstore.Config{Bucket: "id_segments"})
	if _, err := store.Create(t.Context(), segment.Tag{Name: "order", Step: 10, MaxID: 50}, true); err != nil {
		t.Fatal(err)
	}
	h := &home{storage: &storage{tags: store}, created: func(string) {}}
	for attempt := 1; attempt <= 3; attempt++ {
		spans, failed := h.Lift(t.Context(), []oneregistry.Mark{{Tag: "order", High: 100, Step: 10}})
		if len(failed) > 0 || len(spans) != 1 || spans[0].First != 1 || spans[0].End < 50 {
			t.Errorf("attempt %d: spans %v, failed %v, want order from 1 to 50 at least", attempt, spans, failed)
		}
	}
}
