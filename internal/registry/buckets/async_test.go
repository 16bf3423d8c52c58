package buckets_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestAServerThatDoesNotKnowAsyncWritesGetsABucketWithoutThem(t *testing.T) {
	nc := natstest.Connect(t, natstest.Start(t))
	old, refused := "old.>", 0
	if _, err := nc.Subscribe(old, func(m *nats.Msg) { // JetStream of before 2.12, with strict: true
		if bytes.Contains(m.Data, []byte("persist_mode")) {
			refused++
			_ = m.Respond([]byte(`{"error":{"code":400,"err_code":10025,"description":"invalid JSON"}}`))
			return
		}
		_ = nc.PublishRequest("$JS.API."+m.Subject[len("old."):], m.Reply, m.Data)
	}); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.NewWithAPIPrefix(nc, "old")
	if err != nil {
		t.Fatal(err)
	}
	b := buckets.New(buckets.OnJetStream(js), buckets.Config{Name: "b", TTL: time.Minute, Fleeting: true})
	open(t, b)
	if refused == 0 {
		t.Error("nothing was refused")
	}
}
