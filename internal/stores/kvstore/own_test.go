package kvstore_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
	"github.com/natsid/natsid/subjects"
)

// ownKeys are two of natsid's own keys in a bucket of marks.
var ownKeys = []string{buckets.Own, buckets.Own + ".w.x"}

func TestNoTagHasAKeyOfNatsidsOwn(t *testing.T) {
	js, bucket := connect(t), bucketName()
	s := open(t, js, bucket)
	before := identity(t, buckets.OnJetStream(js), bucket)
	for _, tag := range ownKeys {
		if subjects.CheckTag(tag) == nil {
			t.Errorf("a request may name the tag %s", tag)
		}
		_, looked := s.Look(t.Context(), tag)
		_, created := s.Create(t.Context(), segment.Tag{Name: tag, Step: 10, MaxID: 1}, true)
		_, loaded := s.Load(t.Context(), tag, 1, 0)
		_, updated := s.Update(t.Context(), tag, segment.Change{Step: 5})
		if s.Restore(t.Context(), floors(tag, floor(5, ""))) == nil {
			t.Errorf("%s is restored", tag)
		}
		for what, err := range map[string]error{
			"look": looked, "create": created, "load": loaded, "update": updated,
			"delete": s.Delete(t.Context(), tag),
		} {
			if !errors.Is(err, segment.ErrInvalid) {
				t.Errorf("%s of %s: %v, want ErrInvalid", what, tag, err)
			}
		}
	}
	if after := identity(t, buckets.OnJetStream(js), bucket); !reflect.DeepEqual(after, before) {
		t.Errorf("the identity is %+v, and was %+v", after, before)
	}
	create(t, s, segment.Tag{Name: buckets.Own + "s", Step: 10, MaxID: 1})
	if tags, err := s.List(t.Context(), "", 10); err != nil || len(tags) != 1 {
		t.Errorf("%v, %v, want a tag that only begins like them", tags, err)
	}
}

// A table may have a row of any name.
func TestARowWithAKeyOfNatsidsOwnIsNotServedAndHarmsNothing(t *testing.T) {
	js, bucket := connect(t), bucketName()
	table := new(segmenttest.Table)
	g := kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: bucket, Table: table})
	if err := g.Own().Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := identity(t, buckets.OnJetStream(js), bucket)
	for _, tag := range append(ownKeys, "order") {
		if err := table.Insert(t.Context(), segment.Tag{Name: tag, Step: 10, MaxID: 100}); err != nil {
			t.Fatal(err)
		}
	}

	for range 2 {
		if err := g.Poll(t.Context(), func(segment.Listing) {}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tag := range ownKeys {
		if l, err := g.Load(t.Context(), tag, 1, 0); !errors.Is(err, segment.ErrInvalid) {
			t.Errorf("%s: %v, %v, want ErrInvalid", tag, l, err)
		}
	}
	for _, key := range ownKeys[1:] {
		if _, err := g.Own().Get(t.Context(), key); !errors.Is(err, buckets.ErrNoKey) {
			t.Errorf("key %s was written: %v", key, err)
		}
	}
	if l, err := g.Load(t.Context(), "order", 1, 0); err != nil || l.Start != 100 {
		t.Errorf("%v, %v, want a range from 100 on", l, err)
	}
	if rows, err := g.List(t.Context(), "", 10); err != nil || len(rows) != 3 {
		t.Errorf("%v, %v, want three rows", rows, err)
	}
	if now := identity(t, buckets.OnJetStream(js), bucket); !reflect.DeepEqual(now, before) {
		t.Errorf("the identity is %+v, and was %+v", now, before)
	}
}
