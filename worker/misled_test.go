package worker_test

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// Answers are published with the worker's rights: what it alone may write, no caller may name as a reply subject.
func TestACallerCannotMakeTheWorkerPublishForHim(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.JSPrefix = "JS.hub.API"
	})
	got := make(chan *nats.Msg, 100)
	for _, subject := range []string{"$KV.>", "$JS.API.>", "id.alarm.>", "id.loader.>", "hub.$KV.>",
		"JS.>", "his.>"} {
		if _, err := r.caller.ChanSubscribe(subject, got); err != nil {
			t.Fatal(err)
		}
	}
	for _, subject := range []string{
		"id.segment.order", "id.snowflake", "id.snowflake.1", "id.tag.list", "id.control.throttle",
	} {
		for _, reply := range []string{
			"$KV.id_segments.order", "$JS.API.STREAM.DELETE.KV_id_segments", "hub.$KV.id_history.7",
			"JS.hub.API.STREAM.DELETE.KV_id_segments", "id.alarm.repeat", "id.loader.w2",
			"his.inbox.1", // the last one is his
		} {
			if err := r.caller.PublishRequest(subject, reply, nil); err != nil {
				t.Fatal(err)
			}
		}
		if m := <-got; m.Subject != "his.inbox.1" {
			t.Errorf("%s: the worker published to %s for a caller", subject, m.Subject)
		}
	}
	for len(got) > 0 {
		if m := <-got; m.Subject != "his.inbox.1" {
			t.Errorf("the worker published to %s for a caller", m.Subject)
		}
	}
}

func TestABatchWhoseReplyIsTooLargeIsRefusedWithOneThatFits(t *testing.T) {
	large := func(_ *segment.Config, cfg *worker.Config) { cfg.MaxBatch = 100_000 }
	r := start(t, natstest.StartWith(t, "max_payload: 600"), 0, newStore(t), large)
	refused := r.ask("id.snowflake", "90000") // in runs of 4096
	if r.wantRefusal(refused, "400"); refused.maxBatch == 0 {
		t.Fatalf("%+v, want a batch that fits", refused)
	}
	if got := r.ask("id.snowflake", strconv.Itoa(refused.maxBatch)); got.code != "" {
		t.Errorf("%d IDs: %+v", refused.maxBatch, got)
	}
}
