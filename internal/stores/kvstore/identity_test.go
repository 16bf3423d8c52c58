package kvstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
)

func firstUse(t *testing.T, s *kvstore.Store, tag string) error {
	t.Helper()
	_, err := s.Create(t.Context(), segment.Tag{Name: tag, Step: 10}, false)
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
	ids := make([]era.Identity, 8)
	for i := range ids {
		wg.Go(func() {
			s := kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: bucket})
			if _, err := s.Open(t.Context()); err != nil {
				t.Error(err)
			}
			var err error
			if ids[i], err = s.Check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id.Registry == "" || id.Registry != ids[0].Registry || id.Kind != string(kvstore.Alone) {
			t.Errorf("identityCheck %+v and %+v", ids[0], id)
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
	if _, err := s.Check(t.Context()); !errors.Is(err, era.ErrNoIdentity) || asked == 0 {
		t.Errorf("%v after %d questions, want ErrNoIdentity", err, asked)
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
	if _, err := s.Check(t.Context()); !errors.Is(err, era.ErrNoIdentity) || asked < 2 {
		t.Errorf("%v after %d questions, want ErrNoIdentity after two", err, asked)
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
		if _, other := b.Open(t.Context()); err != nil || !errors.Is(other, era.ErrKind) {
			t.Errorf("kind %s: %v; then kind %s: %v, want ErrKind", first, err, second, other)
		}
		if _, err := b.Load(t.Context(), "order", 0, 0); !errors.Is(err, era.ErrKind) {
			t.Errorf("a load of the second: %v", err)
		}
		if err := b.Restore(t.Context(), floors("order", floor(10, ""))); !errors.Is(err, era.ErrKind) {
			t.Errorf("a restore by the second: %v", err)
		}
		if second != kvstore.Alone {
			continue
		}
		// The kind changes while both run.
		r, err := kvstore.Inspect(t.Context(), streams, bucket)
		if err == nil {
			err = kvstore.MakeAlone(t.Context(), streams, bucket, r)
		}
		_, errA := a.Check(t.Context())
		_, errB := b.Check(t.Context())
		if err != nil || !errors.Is(errA, era.ErrKind) || errB != nil || b.Trouble() != nil {
			t.Errorf("once the kind was changed: %v, first %v, second %v", err, errA, errB)
		}
	}
}
