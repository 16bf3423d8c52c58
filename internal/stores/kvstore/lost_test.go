package kvstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
)

func TestRevisionsOfARecreatedBucketDoNotRepeat(t *testing.T) {
	js, bucket := connect(t), bucketName()
	s := open(t, js, bucket)
	tag := segment.Tag{Name: "order", Step: 10, MaxID: 1}
	create(t, s, tag)
	kv, _ := js.KeyValue(t.Context(), bucket)
	old, err := kv.Get(t.Context(), "order")
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteKeyValue(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, js, bucket).Create(t.Context(), tag, false); err != nil {
		t.Fatal(err)
	}
	fresh, err := kv.Get(t.Context(), "order")
	if err != nil || fresh.Revision() <= old.Revision() {
		t.Errorf("revision %d, then %d in the new bucket", old.Revision(), fresh.Revision())
	}
	_, err = kv.Update(t.Context(), "order", old.Value(), old.Revision())
	if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		t.Errorf("a write with the old revision: %v, want a mismatch", err)
	}
}

func TestABucketLostInUseIsReportedOnceAndCreatedAgain(t *testing.T) {
	js, bucket := connect(t), bucketName()
	for name, call := range map[string]func(*kvstore.Store) error{
		"a load": func(s *kvstore.Store) error {
			_, err := s.Load(t.Context(), "order", 0, 0)
			return err
		},
		"a create": func(s *kvstore.Store) error {
			_, err := s.Create(t.Context(), segment.Tag{Name: "invoice", Step: 1, MaxID: 1}, true)
			return err
		},
		"a list": func(s *kvstore.Store) error {
			_, err := s.List(t.Context(), "", 10)
			return err
		},
	} {
		lost := 0
		s := kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: bucket, Lost: func() { lost++ }})
		if _, err := s.Create(t.Context(), segment.Tag{Name: "order", Step: 1, MaxID: 1}, true); err != nil &&
			!errors.Is(err, segment.ErrExists) {
			t.Fatal(err)
		}
		before := revision(t, js, bucket)
		if err := js.DeleteStream(t.Context(), "KV_"+bucket); err != nil {
			t.Fatal(err)
		}
		if err := call(s); err != nil && !errors.Is(err, segment.ErrUnknownTag) || lost != 1 || s.Trouble() != nil {
			t.Errorf("%s: %v, reported %d times, trouble %v", name, err, lost, s.Trouble())
		}
		if _, err := s.Load(t.Context(), "order", 0, 0); !errors.Is(err, segment.ErrUnknownTag) || lost != 1 ||
			s.Trouble() != nil {
			t.Errorf("%s, then a load: %v, reported %d times, trouble %v", name, err, lost, s.Trouble())
		}
		if _, err := s.Create(t.Context(), segment.Tag{Name: "order", Step: 1, MaxID: 1000}, true); err != nil {
			t.Errorf("%s, then the tag created again: %v", name, err)
		}
		if after := revision(t, js, bucket); after <= before {
			t.Errorf("%s: revision %d after %d: an old compare-and-set could succeed", name, after, before)
		}
	}
}

// revision returns the last revision of a bucket.
func revision(t *testing.T, js jetstream.JetStream, bucket string) uint64 {
	t.Helper()
	stream, err := js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.LastSeq
}

func TestATagLoadedByOthersIsNotCreatedOnFirstUseInARecreatedBucket(t *testing.T) {
	js, bucket := connect(t), bucketName()
	allocator := func() *segment.Allocator {
		a := segment.New(segment.Config{
			Store: open(t, js, bucket), Deadline: 2 * time.Second, LoadTimeout: time.Second, AutoStep: 10,
		})
		t.Cleanup(a.Close)
		return a
	}
	uses, never := allocator(), allocator()
	if _, err := uses.Take(t.Context(), "order", 1); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "KV_"+bucket); err != nil {
		t.Fatal(err)
	}
	if _, err := uses.Take(t.Context(), "order", 100); !errors.Is(err, segment.ErrUnknownTag) {
		t.Errorf("an allocator that used it: %v, want ErrUnknownTag", err)
	}
	if got, err := never.Take(t.Context(), "order", 1); !errors.Is(err, segment.ErrUnknownTag) {
		t.Errorf("one that never used it: %v, %v, want ErrUnknownTag: these IDs were issued", got, err)
	}
}

// purged leaves the marker of a purge, as one in a bucket of before has left it.
func purged(t *testing.T, js jetstream.JetStream, bucket, key string) error {
	m := nats.NewMsg("$KV." + bucket + "." + key)
	m.Header.Set("KV-Operation", "PURGE")
	_, err := js.PublishMsg(t.Context(), m)
	return err
}

func TestARemovedEntryIsDistinguishedFromOneLostWithItsBucket(t *testing.T) {
	js, bucket := connect(t), bucketName()
	s := open(t, js, bucket)
	for _, tag := range []string{"deleted", "purged", "damaged", "stays"} {
		create(t, s, segment.Tag{Name: tag, Step: 10, MaxID: 1})
	}
	kv, err := js.KeyValue(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	_, err = kv.PutString(t.Context(), "damaged", "not json")
	if err = errors.Join(err, kv.Delete(t.Context(), "deleted"), purged(t, js, bucket, "purged")); err != nil {
		t.Fatal(err)
	}
	polled := func() (l segment.Listing) {
		t.Helper()
		if err := s.Poll(t.Context(), func(got segment.Listing) { l = got }); err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := polled(); len(l.Tags) != 1 || l.Tags[0].Name != "stays" || !l.Removed("deleted") || !l.Removed("purged") ||
		l.Removed("damaged") || l.Removed("never") {
		t.Errorf("%+v: want one tag, and two removed ones", l.Tags)
	}
	if err := js.DeleteStream(t.Context(), "KV_"+bucket); err != nil {
		t.Fatal(err)
	}
	if l := polled(); len(l.Tags) != 0 || l.Removed("stays") || l.Removed("deleted") {
		t.Errorf("%+v after the bucket was lost: want no tag, and none removed", l.Tags)
	}
}

func TestARemovedTagIsCreatedAgainOnlyByItsOperator(t *testing.T) {
	js, bucket := connect(t), bucketName()
	one, other := open(t, js, bucket), open(t, js, bucket)
	tag := segment.Tag{Name: "order", Step: 10, MaxID: 1}
	create(t, one, tag)
	if _, err := one.Load(t.Context(), "order", 0, 0); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	for how, remove := range map[string]func() error{
		"deleted": func() error { return kv.Delete(t.Context(), "order") },
		"purged":  func() error { return purged(t, js, bucket, "order") },
	} {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		if made, err := other.Create(t.Context(), tag, false); !errors.Is(err, segment.ErrUnknownTag) ||
			errors.Is(err, segment.ErrDisabled) {
			t.Errorf("%s, and created on first use: %+v, %v: its IDs repeat", how, made, err)
		}
		tag.MaxID += 100
		if made, err := other.Create(t.Context(), tag, true); err != nil || made.MaxID != tag.MaxID {
			t.Errorf("%s, and created by its operator: %+v, %v", how, made, err)
		}
	}
}

// doomed is a JetStream whose bucket is lost right before the first write.
type doomed struct {
	buckets.Streams
	js   jetstream.JetStream
	gone atomic.Bool
}

func (d *doomed) Publish(ctx context.Context, bucket, key string, w buckets.Write) (uint64, error) {
	if key != buckets.Own && !d.gone.Swap(true) {
		if err := d.js.DeleteStream(ctx, "KV_"+bucket); err != nil {
			return 0, err
		}
	}
	return d.Streams.Publish(ctx, bucket, key, w)
}

func TestATagIsNotCreatedOnFirstUseInABucketLostAtThatMoment(t *testing.T) {
	js := connect(t)
	s := openOn(t, &doomed{Streams: buckets.OnJetStream(js), js: js}, bucketName())
	made, err := s.Create(t.Context(), segment.Tag{Name: "order", Step: 10, MaxID: 1}, false)
	if !errors.Is(err, segment.ErrUnknownTag) {
		t.Errorf("%+v, %v: others may have loaded it in the bucket that was lost", made, err)
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
	if _, err := p.Check(t.Context()); !errors.Is(err, lineage.ErrNoIdentity) { // makes it again
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
}

func TestATagCreatedOnFirstUseInAnotherEraIsNotLoaded(t *testing.T) {
	js, bucket := connect(t), bucketName()
	s := open(t, js, bucket)
	left := `{"mark":1,"step":10,"first":"an era that is lost"}`
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
			if _, err := other.Check(t.Context()); !errors.Is(err, lineage.ErrNoIdentity) {
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
		if _, err := other.Check(t.Context()); !errors.Is(err, lineage.ErrNoIdentity) {
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
		if _, err := other.Check(t.Context()); !errors.Is(err, lineage.ErrNoIdentity) {
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

	// Its operator, who gets that error, creates it again, above all of its IDs.
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
