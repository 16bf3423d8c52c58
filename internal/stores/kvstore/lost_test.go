package kvstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
)

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
		if err := call(s); err != nil && !errors.Is(err, segment.ErrUnknownTag) || lost != 1 ||
			s.Own().Trouble() != nil {
			t.Errorf("%s: %v, reported %d times, trouble %v", name, err, lost, s.Own().Trouble())
		}
		if _, err := s.Load(t.Context(), "order", 0, 0); !errors.Is(err, segment.ErrUnknownTag) || lost != 1 ||
			s.Own().Trouble() != nil {
			t.Errorf("%s, then a load: %v, reported %d times, trouble %v", name, err, lost, s.Own().Trouble())
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
		if err := firstUse(t, other, "order"); !errors.Is(err, segment.ErrUnknownTag) ||
			errors.Is(err, segment.ErrDisabled) {
			t.Errorf("%s, and created on first use: %v: its IDs repeat", how, err)
		}
		if made, err := other.Create(t.Context(), segment.Tag{Name: "order", Step: 10}, true); !errors.Is(err,
			segment.ErrInvalid) {
			t.Errorf("%s, and created by its operator without a start: %+v, %v", how, made, err)
		}
		tag.MaxID += 100
		if made, err := other.Create(t.Context(), tag, true); err != nil || made.MaxID != tag.MaxID {
			t.Errorf("%s, and created by its operator: %+v, %v", how, made, err)
		}
	}
}

// losing is a JetStream with a hook for when settings are read, and for when an entry is written.
type losing struct {
	buckets.Streams
	look  func()
	write func(key string)
}

func (l *losing) Info(ctx context.Context, bucket string) (buckets.Info, error) {
	l.look()
	return l.Streams.Info(ctx, bucket)
}

func (l *losing) Publish(ctx context.Context, bucket, key string, w buckets.Write) (uint64, error) {
	l.write(key)
	return l.Streams.Publish(ctx, bucket, key, w)
}

// loses returns a JetStream whose bucket is lost when a key is written for which is holds.
func loses(js jetstream.JetStream, is func(key string) bool, lose func()) *losing {
	once := sync.OnceFunc(lose)
	return &losing{buckets.OnJetStream(js), func() {}, func(key string) {
		if is(key) {
			once()
		}
	}}
}

func remove(t *testing.T, js jetstream.JetStream, bucket string) {
	t.Helper()
	if err := js.DeleteStream(t.Context(), "KV_"+bucket); err != nil {
		t.Error(err)
	}
}

func TestATagIsNotCreatedOnFirstUseInABucketLostAtThatMoment(t *testing.T) {
	js, bucket := connect(t), bucketName()
	isTag := func(key string) bool { return key != buckets.Own }
	s := openOn(t, loses(js, isTag, func() { remove(t, js, bucket) }), bucket)
	made, err := s.Create(t.Context(), segment.Tag{Name: "order", Step: 10}, false)
	if !errors.Is(err, segment.ErrUnknownTag) {
		t.Errorf("%+v, %v: others may have loaded it in the bucket that was lost", made, err)
	}
}

// A bucket is lost, and made again by another worker, right before it is looked at, or its identity is written.
func TestNoIdentityIsWrittenIntoABucketMadeAgainMeanwhile(t *testing.T) {
	js := connect(t)
	for _, step := range []string{"look", "write"} {
		bucket := bucketName()
		other := open(t, js, bucket) // which sees the bucket lost twice
		remove(t, js, bucket)
		isIdentity := func(key string) bool { return step == "write" && key == buckets.Own }
		lose := sync.OnceFunc(func() {
			remove(t, js, bucket)
			if _, err := other.Own().Look(t.Context()); err != nil {
				t.Error(err)
			}
		})
		l, infos := loses(js, isIdentity, lose), 0
		l.look = func() {
			if infos++; step == "look" && infos == 2 { // missing, and made
				lose()
			}
		}
		s := kvstore.New(l, kvstore.Config{Bucket: bucket})
		if err := s.Own().Open(t.Context()); err != nil || !unfounded(t, js, bucket) {
			t.Errorf("lost before the %s: %v, want no identity", step, err)
		}
	}
}

// A bucket is lost, made again and resumed while a tag is created: its entry lands in the bucket that was made again.
func TestATagCreatedWhileTheBucketIsMadeAgainBeginsAboveTheOffset(t *testing.T) {
	for _, start := range []int64{0, 500} {
		js, bucket := connect(t), bucketName()
		other := open(t, js, bucket)
		was := identity(t, buckets.OnJetStream(js), bucket)
		isOrder := func(key string) bool { return key == "order" }
		s := openOn(t, loses(js, isOrder, func() {
			remove(t, js, bucket)
			if _, err := other.Own().Look(t.Context()); err != nil || !unfounded(t, js, bucket) {
				t.Errorf("%v, want no identity", err)
			}
			put(t, buckets.OnJetStream(js), bucket, era.Found("kv", time.Now()))
			resume(t, buckets.OnJetStream(js), bucket, 1000)
		}), bucket)
		if _, err := s.Create(t.Context(), segment.Tag{Name: "order", Step: 10, MaxID: start}, true); err != nil {
			t.Fatal(err)
		}
		l, err := other.Load(t.Context(), "order", 0, 0)
		if start > 0 { // a number of an era that this bucket does not know
			if !errors.As(err, new(*era.UnknownError)) {
				t.Errorf("started at %d: loaded %v, %v, want an UnknownError", start, l, err)
			}
			now := identity(t, buckets.OnJetStream(js), bucket)
			put(t, buckets.OnJetStream(js), bucket, now.Merge(was.Registry, was.Offsets))
			l, err = other.Load(t.Context(), "order", 0, 0)
			if err != nil || l.Start != 1500 {
				t.Errorf("started at %d: loaded %v, %v, want it from 1500", start, l, err)
			}
		} else if err != nil || l.Start != 1001 {
			t.Errorf("loaded %v, %v, want it from 1001", l, err)
		}
	}
}
