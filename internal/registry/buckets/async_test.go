package buckets_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// JetStream before 2.12 refuses the setting if it is strict.
func TestAServerThatDoesNotKnowAsyncWritesGetsABucketWithoutThem(t *testing.T) {
	cfg, refused := buckets.Config{Name: "b", TTL: time.Minute, Fleeting: true}, 0
	between(t, natstest.Connect(t, natstest.Start(t)), cfg, func(_ string, m *nats.Msg) (isAsync bool) {
		if isAsync = bytes.Contains(m.Data, []byte("persist_mode")); isAsync {
			refused++
			_ = m.Respond([]byte(`{"error":{"code":400,"err_code":10025,"description":"invalid JSON"}}`))
		}
		return isAsync
	})
	if refused == 0 {
		t.Error("nothing was refused")
	}
}
