package kvstore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/kvstore"
)

// before makes a bucket as a natsid without identities made it, with one tag that was loaded, and returns its stream.
func before(t *testing.T, js jetstream.JetStream, bucket string) jetstream.Stream {
	t.Helper()
	first := uint64(time.Now().UnixMicro())
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, FirstSeq: first, MaxMsgsPerSubject: 1,
		MaxBytes: -1, MaxMsgSize: -1, MaxMsgs: -1, MaxConsumers: -1, Replicas: 1, Discard: jetstream.DiscardNew,
		Duplicates: 2 * time.Minute, AllowRollup: true, DenyDelete: true,
	})
	if err == nil {
		_, err = js.Publish(t.Context(), "$KV."+bucket+".order", []byte(`{"mark":101,"step":10}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func firstUse(t *testing.T, s *kvstore.Store, tag string) error {
	t.Helper()
	_, err := s.Create(t.Context(), segment.Tag{Name: tag, Step: 10, MaxID: 1}, false)
	return err
}

func mustLoad(t *testing.T, s *kvstore.Store, tag string, atLeast int64) {
	t.Helper()
	if l, err := s.Load(t.Context(), tag, 0, 0); err != nil || l.Start < atLeast {
		t.Errorf("tag %s: loaded %v, %v, want IDs from %d or above", tag, l, err, atLeast)
	}
}

func TestOneOfManyWorkersGivesANewBucketItsIdentity(t *testing.T) {
	js, bucket := connect(t), bucketName()
	var wg sync.WaitGroup
	ids := make([]kvstore.Identity, 8)
	for i := range ids {
		wg.Go(func() {
			s := kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: bucket})
			if _, err := s.Open(t.Context()); err != nil {
				t.Error(err)
			}
			ids[i] = s.Identity()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id.Registry == "" || id != ids[0] || id.Kind != kvstore.Alone {
			t.Errorf("identities %+v and %+v", ids[0], id)
		}
	}
}

func TestABucketMadeBesideWorkersOfALostOneGetsNoIdentity(t *testing.T) {
	js, bucket := connect(t), bucketName()
	refuse := errors.New("worker eu-1 has ranges of another registry")
	var asked int
	s := kvstore.New(buckets.OnJetStream(js), kvstore.Config{
		Bucket: bucket, MayFound: func(context.Context) error { asked++; return refuse },
	})
	if _, err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := firstUse(t, s, "order"); !errors.Is(err, segment.ErrUnknownTag) || asked == 0 {
		t.Errorf("%v after %d questions, want ErrUnknownTag", err, asked)
	}
	// Allowed before the bucket was made, and refused once it was.
	bucket, asked = bucketName(), 0
	s = kvstore.New(buckets.OnJetStream(js), kvstore.Config{
		Bucket: bucket, MayFound: func(context.Context) error {
			if asked++; asked > 1 {
				return refuse
			}
			return nil
		},
	})
	if _, err := s.Check(t.Context()); !errors.Is(err, kvstore.ErrNoIdentity) || asked < 2 {
		t.Errorf("%v after %d questions, want ErrNoIdentity after two", err, asked)
	}
}

func TestABucketOfBeforeIsAdoptedOnce(t *testing.T) {
	js, bucket := connect(t), bucketName()
	stream := before(t, js, bucket)
	var log bytes.Buffer
	adopt := func(streams buckets.Streams) error {
		s := kvstore.New(streams, kvstore.Config{Bucket: bucket, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if _, err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		return firstUse(t, s, "new")
	}
	err := adopt(frozen{buckets.OnJetStream(js)})
	if err != nil || !strings.Contains(log.String(), "without an identity") {
		t.Errorf("%v, logged\n%s, want the adoption", err, log.String())
	}
	// It is purged, since the worker could not protect it; its operator puts a tag back.
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	if err := adopt(buckets.OnJetStream(js)); !errors.Is(err, segment.ErrUnknownTag) || log.Len() > 0 {
		t.Errorf("purged: %v, logged\n%s, want no identity", err, log.String())
	}
}

func TestAPurgeBeforeTheBucketWasProtectedRepeatsNothing(t *testing.T) {
	js, bucket := connect(t), bucketName()
	stream := before(t, js, bucket)
	var changes []error
	p := kvstore.New(frozen{buckets.OnJetStream(js)}, kvstore.Config{
		Bucket: bucket, Changed: func(err error) { changes = append(changes, err) },
	})
	if err := firstUse(t, p, "invoice"); err != nil {
		t.Fatal(err)
	}
	mustLoad(t, p, "invoice", 1)
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	fresh := kvstore.New(frozen{buckets.OnJetStream(js)}, kvstore.Config{Bucket: bucket})
	for who, s := range map[string]*kvstore.Store{"the one that loaded it": p, "one without memory": fresh} {
		if err := firstUse(t, s, "invoice"); !errors.Is(err, segment.ErrUnknownTag) {
			t.Errorf("%s created the tag at 1: %v", who, err)
		}
	}
	// Its operator puts one tag back, and the bucket looks like one of before.
	if _, err := p.Create(t.Context(), segment.Tag{Name: "invoice", Step: 10, MaxID: 1000}, true); err != nil {
		t.Fatal(err)
	}
	if err := firstUse(t, p, "order"); !errors.Is(err, segment.ErrUnknownTag) {
		t.Errorf("the one that knew the identity created another tag at 1: %v", err)
	}
	if len(changes) != 1 || !errors.Is(changes[0], kvstore.ErrNoIdentity) {
		t.Errorf("reported %v, want ErrNoIdentity once", changes)
	}
}

func TestABucketMadeByHandIsUsedLikeANewOne(t *testing.T) {
	js, bucket := connect(t), bucketName()
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	if err := firstUse(t, open(t, js, bucket), "order"); err != nil {
		t.Error(err)
	}
}

func TestWorkersOfTwoKindsDoNotShareMarks(t *testing.T) {
	js := connect(t)
	streams := buckets.OnJetStream(js)
	for first, second := range map[kvstore.Kind]kvstore.Kind{
		kvstore.Alone: kvstore.Guarded, kvstore.Guarded: kvstore.Alone,
	} {
		bucket := bucketName()
		a := kvstore.New(streams, kvstore.Config{Bucket: bucket, Kind: first})
		b := kvstore.New(streams, kvstore.Config{Bucket: bucket, Kind: second})
		_, err := a.Open(t.Context())
		if _, other := b.Open(t.Context()); err != nil || !errors.Is(other, kvstore.ErrKind) {
			t.Errorf("kind %s: %v; then kind %s: %v, want ErrKind", first, err, second, other)
		}
		if _, err := b.Load(t.Context(), "order", 0, 0); !errors.Is(err, kvstore.ErrKind) {
			t.Errorf("a load of the second: %v", err)
		}
		if err := b.SetMark(t.Context(), "order", segment.Mark{High: 10}); !errors.Is(err, kvstore.ErrKind) {
			t.Errorf("a mark of the second: %v", err)
		}
		// The kind changes while both run.
		r, err := kvstore.Inspect(t.Context(), streams, bucket)
		if err == nil {
			err = kvstore.SetKind(t.Context(), streams, bucket, r, second)
		}
		_, errA := a.Check(t.Context())
		_, errB := b.Check(t.Context())
		if err != nil || !errors.Is(errA, kvstore.ErrKind) || errB != nil || b.Trouble() != nil {
			t.Errorf("once the kind was changed: %v, first %v, second %v", err, errA, errB)
		}
	}
}

func TestABucketMadeAgainKeepsItsKind(t *testing.T) {
	js, bucket := connect(t), bucketName()
	s := open(t, js, bucket)
	if err := js.DeleteStream(t.Context(), "KV_"+bucket); err != nil {
		t.Fatal(err)
	}
	if err := s.RaiseLevel(t.Context(), 2); !errors.Is(err, kvstore.ErrNoIdentity) {
		t.Errorf("raise the level: %v, want ErrNoIdentity, which says what to do", err)
	}
	if _, err := s.Check(t.Context()); !errors.Is(err, kvstore.ErrNoIdentity) {
		t.Fatal(err)
	}
	// Its table may be of a time before what the others have loaded.
	guarded := kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: bucket, Kind: kvstore.Guarded})
	if _, err := guarded.Open(t.Context()); !errors.Is(err, kvstore.ErrKind) {
		t.Errorf("a worker of another kind: %v, want ErrKind", err)
	}
	if _, err := kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: bucket}).Open(t.Context()); err != nil {
		t.Errorf("a worker of its kind: %v", err)
	}
}

func TestMarksOfBeforeThatGuardATableAreNotAdoptedAlone(t *testing.T) {
	js, bucket := connect(t), bucketName()
	before(t, js, bucket)
	if _, err := js.Publish(t.Context(), "$KV."+bucket+".row", []byte(`{"mark":10,"seen":5,"step":1}`)); err != nil {
		t.Fatal(err)
	}
	s := kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: bucket})
	if _, err := s.Open(t.Context()); !errors.Is(err, kvstore.ErrKind) {
		t.Errorf("%v, want ErrKind: the table may be ahead", err)
	}
}

func TestAnIdentityThatCannotBeReadIsRefused(t *testing.T) {
	js, bucket := connect(t), bucketName()
	s := open(t, js, bucket)
	create(t, s, segment.Tag{Name: "order", Step: 10, MaxID: 1})
	good, err := kvstore.Inspect(t.Context(), buckets.OnJetStream(js), bucket)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{
		"", "{", `{"registry":"R"`, `{"registry":"","made":"2026-01-01T00:00:00Z","kind":"kv"}`,
		`{"registry":"R","made":"2026-01-01T00:00:00Z","kind":"redis"}`,
		`{"registry":"R","made":"2026-01-01T00:00:00Z","kind":"kv","version":4}`,
	} {
		if _, err := js.Publish(t.Context(), "$KV."+bucket+".$natsid", []byte(value)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Check(t.Context()); !errors.Is(err, kvstore.ErrIdentity) {
			t.Errorf("%q: %v, want ErrIdentity", value, err)
		}
		if l, err := s.Load(t.Context(), "order", 0, 0); !errors.Is(err, kvstore.ErrIdentity) {
			t.Errorf("%q: loaded %v, %v", value, l, err)
		}
		fresh := kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: bucket})
		if _, err := fresh.Open(t.Context()); !errors.Is(err, kvstore.ErrIdentity) {
			t.Errorf("%q: opened: %v", value, err)
		}
	}
	other := `{"registry":"R","made":"2026-01-01T00:00:00Z","kind":"kv"}`
	if _, err := js.Publish(t.Context(), "$KV."+bucket+".$natsid", []byte(other)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(t.Context()); !errors.Is(err, kvstore.ErrRegistry) ||
		!strings.Contains(err.Error(), good.Identity.Registry) {
		t.Errorf("another registry: %v, want ErrRegistry", err)
	}
}

func TestALevelIsRaisedOnceAndStays(t *testing.T) {
	js, bucket := connect(t), bucketName()
	stores := []*kvstore.Store{open(t, js, bucket), open(t, js, bucket)}
	create(t, stores[0], segment.Tag{Name: "order", Step: 10, MaxID: 1})
	if l := stores[0].Level(); l != 1 {
		t.Errorf("level %d at first", l)
	}
	was := stores[0].Identity()
	var raising sync.WaitGroup
	for _, s := range stores {
		raising.Go(func() {
			if err := s.RaiseLevel(t.Context(), 2); err != nil || s.Level() != 2 {
				t.Errorf("level %d, %v", s.Level(), err)
			}
		})
	}
	raising.Wait()
	if err := stores[0].RaiseLevel(t.Context(), 1); err != nil || stores[0].Level() != 2 {
		t.Errorf("level %d, %v: it never falls", stores[0].Level(), err)
	}
	was.Version = 2
	if is := stores[1].Identity(); is != was {
		t.Errorf("%+v, want only the level changed of %+v", is, was)
	}
	streams := buckets.OnJetStream(js)
	report, err := kvstore.Inspect(t.Context(), streams, bucket)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := kvstore.Confirm(t.Context(), streams, bucket, report, kvstore.Alone); err != nil || id.Version != 2 {
		t.Errorf("%+v, %v: an operator's word about tags changed the level", id, err)
	}
	mustLoad(t, stores[1], "order", 1)
}

// Workers of one bucket load for one another, and of two never.
func TestWorkersOfOneBucketNameItAlike(t *testing.T) {
	js, bucket := connect(t), bucketName()
	a := open(t, js, bucket)
	names := map[string]bool{"": true}
	for range 3 {
		b := open(t, js, bucket)
		if _, err := a.Check(t.Context()); err != nil && !errors.Is(err, kvstore.ErrNoIdentity) {
			t.Fatal(err)
		}
		name := a.Bucket()
		if names[name] || name != b.Bucket() {
			t.Errorf("%q and %q, and before %v", name, b.Bucket(), names)
		}
		names[name] = true
		if err := js.DeleteStream(t.Context(), "KV_"+bucket); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Check(t.Context()); !errors.Is(err, kvstore.ErrNoIdentity) { // makes it again
			t.Fatalf("%v, want ErrNoIdentity", err)
		}
	}
}
