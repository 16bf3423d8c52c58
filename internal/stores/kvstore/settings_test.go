package kvstore_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
)

// edit changes the settings of a bucket, as an operator can.
func edit(t *testing.T, js jetstream.JetStream, bucket string, change func(*jetstream.StreamConfig)) {
	t.Helper()
	stream, err := js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	change(&cfg)
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

func TestNoBucketOfMarksCanBePurgedAndLoadsContinue(t *testing.T) {
	js, bucket := connect(t), bucketName()
	s := open(t, js, bucket)
	create(t, s, segment.Tag{Name: "order", Step: 10, MaxID: 101})
	mustLoad(t, s, "order", 101)
	stream, err := js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	for how, purge := range map[string]func() error{
		"the stream": func() error { return stream.Purge(t.Context()) },
		"the subject": func() error {
			return stream.Purge(t.Context(), jetstream.WithPurgeSubject("$KV."+bucket+".order"))
		},
		"the key":   func() error { return kv.Purge(t.Context(), "order") },
		"a message": func() error { return stream.DeleteMsg(t.Context(), stream.CachedInfo().State.LastSeq) },
	} {
		if err := purge(); err == nil {
			t.Errorf("%s was purged", how)
		}
	}
	mustLoad(t, s, "order", 111)
}

func TestSettingsThatForgetAreNoticedWhileInUseAndWhenCorrected(t *testing.T) {
	js := connect(t)
	for setting, change := range map[string]struct{ spoil, correct func(*jetstream.StreamConfig) }{
		"MaxAge": {
			func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = time.Hour, time.Minute },
			func(c *jetstream.StreamConfig) { c.MaxAge = 0 },
		},
		"sources": {
			func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "other"}} },
			func(c *jetstream.StreamConfig) { c.Sources = nil },
		},
		"subjects": {
			func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "elsewhere.>") },
			func(c *jetstream.StreamConfig) { c.Subjects = c.Subjects[:1] },
		},
		"discard": {
			func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardOld, 1000 },
			func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardNew, -1 },
		},
	} {
		t.Run(setting, func(t *testing.T) {
			bucket := bucketName()
			s := kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: bucket})
			create(t, s, segment.Tag{Name: "order", Step: 10, MaxID: 1})
			edit(t, js, bucket, change.spoil)
			if _, err := s.Own().Look(t.Context()); !errors.Is(err, buckets.ErrUnfit) {
				t.Errorf("a look returned %v, want ErrUnfit", err)
			}
			if _, err := s.Own().Get(t.Context(), buckets.Own); err != nil {
				t.Errorf("the identity cannot be read, so no worker can be stopped: %v", err)
			}
			edit(t, js, bucket, change.correct)
			if _, err := s.Own().Look(t.Context()); err != nil {
				t.Errorf("once it was corrected: %v", err)
			}
			mustLoad(t, s, "order", 1)
		})
	}
}

func TestABucketThatIsAMirrorIsRefused(t *testing.T) {
	js, bucket := connect(t), bucketName()
	origin := jetstream.StreamConfig{Name: "origin", Subjects: []string{"o.>"}}
	if _, err := js.CreateStream(t.Context(), origin); err != nil {
		t.Fatal(err)
	}
	mirror := jetstream.StreamConfig{Name: "KV_" + bucket, Mirror: &jetstream.StreamSource{Name: "origin"}}
	if _, err := js.CreateStream(t.Context(), mirror); err != nil {
		t.Fatal(err)
	}
	s := kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: bucket})
	err := s.Own().Open(t.Context())
	if !errors.Is(err, buckets.ErrUnfit) || !strings.Contains(err.Error(), "origin") {
		t.Errorf("%v, want ErrUnfit and the origin", err)
	}
	_, err = s.Create(t.Context(), segment.Tag{Name: "order", Step: 10, MaxID: 1}, true)
	if !errors.Is(err, buckets.ErrUnfit) {
		t.Errorf("a tag was created in it: %v", err)
	}
}

func TestAnExistingBucketIsUsedAsItIs(t *testing.T) {
	js, bucket := connect(t), bucketName()
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := kvstore.New(buckets.OnJetStream(js), kvstore.Config{
		Bucket: bucket, Replicas: 3, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	err := s.Own().Open(t.Context())
	if want := "bucket=" + bucket + " replicas=1 wanted=3"; err != nil || !strings.Contains(log.String(), want) {
		t.Fatalf("it logs %q, %v, want %q", log.String(), err, want)
	}
	if err := firstUse(t, s, "order"); err != nil || unfounded(t, js, bucket) {
		t.Errorf("%v, want it used like a new one", err)
	}
}
