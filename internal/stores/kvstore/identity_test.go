package kvstore_test

import (
	"context"
	"errors"
	"fmt"
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

// unfounded reports whether a bucket has no identity.
func unfounded(t *testing.T, js jetstream.JetStream, bucket string) bool {
	t.Helper()
	_, err := buckets.OnJetStream(js).Last(t.Context(), bucket, era.Key)
	if err != nil && !errors.Is(err, buckets.ErrNoKey) {
		t.Fatal(err)
	}
	return err != nil
}

func TestOneOfManyWorkersGivesANewBucketItsIdentity(t *testing.T) {
	streams, bucket := buckets.OnJetStream(connect(t)), bucketName()
	var wg sync.WaitGroup
	ids := make([]era.Identity, 8)
	for i := range ids {
		wg.Go(func() {
			s := kvstore.New(streams, kvstore.Config{Bucket: bucket})
			e, err := s.Own().Get(t.Context(), era.Key)
			if err == nil {
				ids[i], err = era.Decode(e.Value)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id.Registry == "" || id.Registry != ids[0].Registry || id.Kind != era.Alone {
			t.Errorf("%+v and %+v", ids[0], id)
		}
	}
}

// Beside workers that use a lost bucket, a new one gets no identity. While nobody can be asked, it is not opened. This
// is asked before the bucket is made, and before it gets its identity.
func TestABucketIsFoundedOnlyIfOthersWereAskedAndUseNone(t *testing.T) {
	js, away := connect(t), errors.New("NATS is away")
	for _, at := range []int{1, 2} {
		for _, refusal := range []error{fmt.Errorf("%w: worker eu-1 rests on it", buckets.ErrInUse), away} {
			bucket, asked := bucketName(), 0
			s := kvstore.New(buckets.OnJetStream(js), kvstore.Config{
				Bucket: bucket, MayFound: func(context.Context) error {
					if asked++; asked == at {
						return refusal
					}
					return nil
				},
			})
			err := s.Own().Open(t.Context())
			if again := s.Own().Open(t.Context()); (refusal == away) != errors.Is(err, away) || again != nil ||
				unfounded(t, js, bucket) != (refusal != away) {
				t.Errorf("%v at question %d: %v; then %v", refusal, at, err, again)
			}
		}
	}
}

// Otherwise a bucket that was made by hand after the marks were lost would be a new registry, with nothing to resume.
func TestAnOperatorsCommandGivesABucketMadeByHandNoIdentity(t *testing.T) {
	js, bucket := connect(t), bucketName()
	command := kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: bucket, Existing: true})
	if err := command.Own().Open(t.Context()); !errors.Is(err, buckets.ErrNoBucket) {
		t.Errorf("%v, want no bucket made", err)
	}
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	if err := command.Own().Open(t.Context()); err != nil || !unfounded(t, js, bucket) {
		t.Errorf("%v, want an open bucket without identity", err)
	}
}
