package app_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// The step would grow to more than 30,000.
func TestTheStepGrowsUpToItsMaximum(t *testing.T) {
	t.Parallel()
	cfg := joined(t, natstest.Start(t))
	cfg.MaxStep = 1000
	launch(t, cfg).where()
	nc := natstest.Connect(t, cfg.NATS)
	for asked, served := 0, 0; served < 150; asked++ {
		// Not by the client: answers that it discards after a retry would count.
		reply, err := nc.Request("id.segment.order", []byte("900"), time.Minute)
		if err != nil || asked == 1000 {
			t.Fatalf("%v after %d requests, of which %d were served", err, asked, served)
		}
		if len(reply.Data) > 0 {
			served++
		}
	}
	tags, err := patient(nc, "").ListTags(t.Context(), subjects.TagList{})
	if err != nil || len(tags) != 1 {
		t.Fatalf("%v, %v", tags, err)
	}
	if n := int64(tags[0].NextID) - 1 - 150*900; n > 12_000 {
		t.Errorf("with --max-step 1000 %d IDs are loaded ahead of 135,000 issued at once", n)
	}
}

func TestAnExistingBucketThatDiffersIsUsedAndLogged(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	js := natstest.JetStream(t, url)
	other := jetstream.KeyValueConfig{Bucket: "id_workers", TTL: time.Minute}
	if _, err := js.CreateKeyValue(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	p := launch(t, joined(t, url))
	p.where()
	p.logs("id_workers", "used as it is", "1m0s")
	if strings.Count(p.log.String(), "used as it is") != 1 {
		t.Error("new buckets are logged as different")
	}
}

// The first start of all may end between making the bucket of marks and writing what it is. The next one must not stop
// for marks that were lost.
func TestAStartAfterOneThatEndedBeforeItFoundedTheMarksServes(t *testing.T) {
	t.Parallel()
	cfg := joined(t, natstest.Start(t))
	js := natstest.JetStream(t, cfg.NATS)
	ended := buckets.New(buckets.OnJetStream(js), buckets.Config{Name: wire.SegmentBucket(cfg.Namespace)})
	if err := ended.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	launch(t, cfg).where()
	if _, err := order(natstest.Connect(t, cfg.NATS), "").Next(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestABucketWithATTLThatMustKeepItsValuesIsRefused(t *testing.T) {
	t.Parallel()
	for _, bucket := range []string{"id_segments", "id_history"} {
		t.Run(bucket, func(t *testing.T) {
			// A server each: one that has just deleted its last stream cannot create
			// the next for a moment. natsid tries again; this test does not.
			url := natstest.Start(t)
			js := natstest.JetStream(t, url)
			forgets := jetstream.KeyValueConfig{Bucket: bucket, TTL: time.Hour}
			if _, err := js.CreateKeyValue(t.Context(), forgets); err != nil {
				t.Fatal(err)
			}
			err := launch(t, joined(t, url)).end()
			if !errors.Is(err, buckets.ErrUnfit) || !containsAll(err.Error(), bucket, "1h0m0s") {
				t.Errorf("%v, want ErrUnfit", err)
			}
			if err := js.DeleteKeyValue(t.Context(), bucket); err != nil {
				t.Fatal(err)
			}
			launch(t, joined(t, url)).where()
		})
	}
}
