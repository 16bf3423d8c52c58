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

// frozen is a JetStream whose buckets the user may not update.
type frozen struct{ buckets.Streams }

func (frozen) Defend(context.Context, string, string) error { return context.DeadlineExceeded }

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

func TestNoBucketOfMarksCanBePurgedAndLoadsContinue(t *testing.T) {
	js := connect(t)
	for _, made := range []string{"new", "of before"} {
		bucket := bucketName()
		if made == "of before" {
			before(t, js, bucket)
		}
		s := open(t, js, bucket)
		if made == "new" {
			create(t, s, segment.Tag{Name: "order", Step: 10, MaxID: 101})
		}
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
				t.Errorf("bucket %s: %s was purged", made, how)
			}
		}
		mustLoad(t, s, "order", 111)
	}
}

func TestANewBucketRefusesPurgesWithoutAnUpdate(t *testing.T) {
	js, bucket := connect(t), bucketName()
	create(t, openOn(t, frozen{buckets.OnJetStream(js)}, bucket), segment.Tag{Name: "order", Step: 10, MaxID: 1})
	stream, err := js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err == nil {
		t.Error("it was purged")
	}
}

func TestAWorkerThatMayNotUpdateTheBucketContinuesAndSaysSoOnce(t *testing.T) {
	js, bucket := connect(t), bucketName()
	before(t, js, bucket)
	var log bytes.Buffer
	s := kvstore.New(frozen{buckets.OnJetStream(js)}, kvstore.Config{
		Bucket: bucket, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for range 3 {
		if _, err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	mustLoad(t, s, "order", 101)
	if n := strings.Count(log.String(), "STREAM.UPDATE.KV_"+bucket); n != 1 {
		t.Errorf("%d lines name the missing permission, want one:\n%s", n, log.String())
	}
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
			var changes []error
			s := kvstore.New(buckets.OnJetStream(js), kvstore.Config{
				Bucket: bucket, Changed: func(err error) { changes = append(changes, err) },
			})
			create(t, s, segment.Tag{Name: "order", Step: 10, MaxID: 1})
			edit(t, js, bucket, change.spoil)
			poll := func() error { return s.Poll(t.Context(), func(segment.Listing) {}) }
			if err := poll(); !errors.Is(err, buckets.ErrUnfit) || !errors.Is(s.Trouble(), buckets.ErrUnfit) {
				t.Errorf("a poll returned %v, trouble %v, want ErrUnfit", err, s.Trouble())
			}
			if l, err := s.Load(t.Context(), "order", 0, 0); !errors.Is(err, buckets.ErrUnfit) {
				t.Errorf("a load returned %v, %v, want ErrUnfit", l, err)
			}
			edit(t, js, bucket, change.correct)
			if err := poll(); err != nil || s.Trouble() != nil {
				t.Errorf("once it was corrected: %v, trouble %v", err, s.Trouble())
			}
			mustLoad(t, s, "order", 1)
			if len(changes) != 2 || !errors.Is(changes[0], buckets.ErrUnfit) || changes[1] != nil {
				t.Errorf("reported %v, want the change and its end", changes)
			}
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
	if _, err := s.Open(t.Context()); !errors.Is(err, buckets.ErrUnfit) || !strings.Contains(err.Error(), "origin") {
		t.Errorf("%v, want ErrUnfit and the origin", err)
	}
	_, err := s.Create(t.Context(), segment.Tag{Name: "order", Step: 10, MaxID: 1}, true)
	if !errors.Is(err, buckets.ErrUnfit) {
		t.Errorf("a tag was created in it: %v", err)
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

func TestNoTagIsCreatedOnFirstUseInABucketMadeAgain(t *testing.T) {
	js, bucket := connect(t), bucketName()
	p := open(t, js, bucket)
	if err := firstUse(t, p, "order"); err != nil {
		t.Fatal(err)
	}
	mustLoad(t, p, "order", 1)
	if err := js.DeleteStream(t.Context(), "KV_"+bucket); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Check(t.Context()); !errors.Is(err, kvstore.ErrNoIdentity) { // makes it again
		t.Fatalf("%v, want ErrNoIdentity", err)
	}
	// Its operator puts one tag back; and the worker is started again, without memory.
	if _, err := p.Create(t.Context(), segment.Tag{Name: "order", Step: 10, MaxID: 1000}, true); err != nil {
		t.Fatal(err)
	}
	for who, s := range map[string]*kvstore.Store{"the one that saw it": p, "one without memory": open(t, js, bucket)} {
		if err := firstUse(t, s, "other"); !errors.Is(err, segment.ErrUnknownTag) {
			t.Errorf("%s created a tag that others may have loaded: %v", who, err)
		}
		mustLoad(t, s, "order", 1000)
	}
	r, err := kvstore.Inspect(t.Context(), buckets.OnJetStream(js), bucket)
	if err == nil {
		_, err = kvstore.Confirm(t.Context(), buckets.OnJetStream(js), bucket, r, kvstore.Alone)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := firstUse(t, p, "other"); err != nil {
		t.Errorf("once it was confirmed: %v", err)
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
		`{"registry":"R","made":"2026-01-01T00:00:00Z","kind":"kv","version":2}`,
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

func TestATagCreatedOnFirstUseInAnotherRegistryIsNotLoaded(t *testing.T) {
	js, bucket := connect(t), bucketName()
	s := open(t, js, bucket)
	left := `{"mark":1,"step":10,"first":"a registry that is lost"}`
	if _, err := js.Publish(t.Context(), "$KV."+bucket+".order", []byte(left)); err != nil {
		t.Fatal(err)
	}
	if l, err := s.Load(t.Context(), "order", 0, 0); !errors.Is(err, segment.ErrUnknownTag) {
		t.Errorf("loaded %v, %v", l, err)
	}
}

// replaced is a JetStream whose bucket is lost, and made again by another worker, right before a step of founding: the
// second time that its settings are read, or its identity is written.
type replaced struct {
	buckets.Streams
	step  string
	lose  func()
	infos int
	once  sync.Once
}

func (r *replaced) Info(ctx context.Context, bucket string) (buckets.Info, error) {
	if r.infos++; r.step == "look" && r.infos == 3 { // missing, made, and now
		r.once.Do(r.lose)
	}
	return r.Streams.Info(ctx, bucket)
}

func (r *replaced) Publish(ctx context.Context, bucket, key string, w buckets.Write) (uint64, error) {
	if r.step == "write" && key == buckets.Own {
		r.once.Do(r.lose)
	}
	return r.Streams.Publish(ctx, bucket, key, w)
}

func TestNoIdentityIsWrittenIntoABucketMadeAgainMeanwhile(t *testing.T) {
	js := connect(t)
	for _, step := range []string{"look", "write"} {
		bucket := bucketName()
		other := open(t, js, bucket) // which sees the bucket lost twice
		if err := js.DeleteStream(t.Context(), "KV_"+bucket); err != nil {
			t.Fatal(err)
		}
		s := kvstore.New(&replaced{Streams: buckets.OnJetStream(js), step: step, lose: func() {
			if err := js.DeleteStream(t.Context(), "KV_"+bucket); err != nil {
				t.Error(err)
			}
			if _, err := other.Check(t.Context()); !errors.Is(err, kvstore.ErrNoIdentity) {
				t.Errorf("%v, want ErrNoIdentity", err)
			}
		}}, kvstore.Config{Bucket: bucket})
		if err := firstUse(t, s, "order"); !errors.Is(err, segment.ErrUnknownTag) {
			t.Errorf("lost before the %s: a tag was created beside its loads in a lost bucket: %v", step, err)
		}
	}
}

// meanwhile is a JetStream whose bucket is lost, and made again by another worker, right before a tag is created.
type meanwhile struct {
	buckets.Streams
	lose func()
	once sync.Once
}

func (m *meanwhile) Publish(ctx context.Context, bucket, key string, w buckets.Write) (uint64, error) {
	if key == "order" {
		m.once.Do(m.lose)
	}
	return m.Streams.Publish(ctx, bucket, key, w)
}

func TestATagCreatedOnFirstUseWhileTheBucketIsMadeAgainIsNotLoaded(t *testing.T) {
	js, bucket := connect(t), bucketName()
	other := open(t, js, bucket)
	s := openOn(t, &meanwhile{Streams: buckets.OnJetStream(js), lose: func() {
		if err := js.DeleteStream(t.Context(), "KV_"+bucket); err != nil {
			t.Error(err)
		}
		if _, err := other.Check(t.Context()); !errors.Is(err, kvstore.ErrNoIdentity) {
			t.Errorf("%v, want ErrNoIdentity", err)
		}
	}}, bucket)
	if err := firstUse(t, s, "order"); err != nil {
		t.Fatal(err) // the look at the identity came before
	}
	for who, s := range map[string]*kvstore.Store{"its creator": s, "another": other} {
		if l, err := s.Load(t.Context(), "order", 0, 0); !errors.Is(err, segment.ErrUnknownTag) {
			t.Errorf("%s loaded %v, %v, which others may have issued", who, l, err)
		}
	}
}

func TestATagCreatedByAnOperatorWhileTheBucketIsMadeAgainIsNotLoaded(t *testing.T) {
	js, bucket := connect(t), bucketName()
	other := open(t, js, bucket)
	s := openOn(t, &meanwhile{Streams: buckets.OnJetStream(js), lose: func() {
		if err := js.DeleteStream(t.Context(), "KV_"+bucket); err != nil {
			t.Error(err)
		}
		if _, err := other.Check(t.Context()); !errors.Is(err, kvstore.ErrNoIdentity) {
			t.Errorf("%v, want ErrNoIdentity", err)
		}
	}}, bucket)
	create := func(start int64) error {
		_, err := s.Create(t.Context(), segment.Tag{Name: "order", Step: 10, MaxID: start}, true)
		return err
	}
	if err := create(500); err != nil {
		t.Fatal(err) // the look at the identity came before
	}
	for who, s := range map[string]*kvstore.Store{"its creator": s, "another": other} {
		if l, err := s.Load(t.Context(), "order", 0, 0); !errors.Is(err, segment.ErrUnknownTag) {
			t.Errorf("%s loaded %v, %v, which others may have issued", who, l, err)
		}
	}

	// The operator who is told so creates it again, above all of its IDs.
	if err := create(2000); err != nil {
		t.Fatal(err)
	}
	if l, err := other.Load(t.Context(), "order", 0, 0); err != nil || l.Start != 2000 {
		t.Errorf("%v, %v, want a range from 2000", l, err)
	}
	if err := create(3000); !errors.Is(err, segment.ErrExists) {
		t.Errorf("%v, want ErrExists for a tag that is there", err)
	}
}
