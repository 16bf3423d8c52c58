package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

var places atomic.Int64

func bucketName() string { return fmt.Sprintf("test_%d", places.Add(1)) }

// connect returns JetStream of a server that this test starts.
func connect(t *testing.T) jetstream.JetStream { return natstest.JetStream(t, natstest.Start(t)) }

func open(t *testing.T, js jetstream.JetStream, bucket string) *kvstore.Store {
	t.Helper()
	return openOn(t, buckets.OnJetStream(js), bucket)
}

func openOn(t *testing.T, streams buckets.Streams, bucket string) *kvstore.Store {
	t.Helper()
	s := kvstore.New(streams, kvstore.Config{Bucket: bucket})
	if err := s.Own().Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func create(t *testing.T, s segment.Store, tag segment.Tag) {
	t.Helper()
	if _, err := s.Create(t.Context(), tag, false); err != nil {
		t.Fatal(err)
	}
}

func TestKVStoreConforms(t *testing.T) {
	segmenttest.Run(t, func(t *testing.T) func() segment.Store {
		url, bucket := natstest.Start(t), bucketName()
		return func() segment.Store { return open(t, natstest.JetStream(t, url), bucket) }
	})
}

// lossy is a JetStream whose writes land, but whose acknowledgements can be lost. While it is blind, nothing can
// be read after such a write.
type lossy struct {
	buckets.Streams
	lose, blind, wrote atomic.Bool
	shown              atomic.Pointer[buckets.Entry] // what any read of a key shows; nil: what it has
}

func (l *lossy) Last(ctx context.Context, bucket, key string) (buckets.Entry, error) {
	if l.blind.Load() && l.wrote.Load() {
		return buckets.Entry{}, context.DeadlineExceeded
	}
	if e := l.shown.Load(); e != nil && e.Key == key {
		return *e, nil
	}
	return l.Streams.Last(ctx, bucket, key)
}

func (l *lossy) Publish(ctx context.Context, bucket, key string, w buckets.Write) (uint64, error) {
	rev, err := l.Streams.Publish(ctx, bucket, key, w)
	if err == nil && l.lose.Load() {
		l.wrote.Store(l.blind.Load())
		return 0, context.DeadlineExceeded
	}
	return rev, err
}

func TestALoadWhoseAckIsLostIsUsedByTheNextOneOfThatWorker(t *testing.T) {
	js, bucket := connect(t), bucketName()
	sure := open(t, js, bucket)
	l := &lossy{Streams: buckets.OnJetStream(js)}
	s := openOn(t, l, bucket)
	create(t, s, segment.Tag{Name: "order", Step: 10, MaxID: 1})
	l.lose.Store(true)
	if r, err := s.Load(t.Context(), "order", 0, 0); err == nil {
		t.Fatalf("a load whose outcome is unknown returned %v", r)
	}
	l.lose.Store(false)
	for i, store := range []segment.Store{s, sure, s} {
		want := []int64{1, 11, 21}[i]
		if r, err := store.Load(t.Context(), "order", 0, 0); err != nil || r.Start != want {
			t.Errorf("load %d after it: %v, %v, want it from %d", i, r, err, want)
		}
	}
}

func TestAnOldReadBringsBackNoRangeOfADeletedTag(t *testing.T) {
	js, bucket := connect(t), bucketName()
	other := open(t, js, bucket)
	for how, see := range map[string]func(s *kvstore.Store, tag string) error{
		"look": func(s *kvstore.Store, tag string) error {
			err := other.Delete(t.Context(), tag)
			_, lookErr := s.Look(t.Context(), tag)
			return errors.Join(err, lookErr)
		},
		"poll": func(s *kvstore.Store, tag string) error {
			return errors.Join(other.Delete(t.Context(), tag), s.Poll(t.Context(), func(segment.Listing) {}))
		},
		"deletion": func(s *kvstore.Store, tag string) error { return s.Delete(t.Context(), tag) },
	} {
		l := &lossy{Streams: buckets.OnJetStream(js)}
		s := openOn(t, l, bucket)
		create(t, s, segment.Tag{Name: how, Step: 10, MaxID: 1})
		l.lose.Store(true)
		if r, err := s.Load(t.Context(), how, 0, 0); err == nil { // keeps a range
			t.Fatalf("loaded %v", r)
		}
		l.lose.Store(false)
		before, err := l.Streams.Last(t.Context(), bucket, how)
		if err = errors.Join(err, see(s, how)); err != nil {
			t.Fatal(err)
		}
		l.shown.Store(&before)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if r, err := s.Load(ctx, how, 0, 0); err == nil {
			t.Errorf("a %s showed that the tag is deleted, and %v was loaded", how, r)
		}
		cancel()
	}
}

func TestAChangeWhoseAckIsLostWasMadeOrMayHaveBeen(t *testing.T) {
	js, bucket := connect(t), bucketName()
	l := &lossy{Streams: buckets.OnJetStream(js)}
	s := openOn(t, l, bucket)
	create(t, s, segment.Tag{Name: "order", Step: 10, MaxID: 1})
	l.lose.Store(true)
	got, err := s.Update(t.Context(), "order", segment.Change{Step: 77, RaiseBy: 100})
	if err != nil || got.MaxID != 101 {
		t.Errorf("a change that the entry shows: %+v, %v", got, err)
	}
	if err := s.Delete(t.Context(), "order"); err != nil {
		t.Errorf("a deletion that the entry shows: %v", err)
	}
	for _, name := range []string{"order", "new"} {
		got, err := s.Create(t.Context(), segment.Tag{Name: name, Step: 5, MaxID: 1}, true)
		if err != nil || got.Step != 5 {
			t.Errorf("%s, created as the entry shows: %+v, %v", name, got, err)
		}
	}
	l.blind.Store(true)
	_, err = s.Update(t.Context(), "order", segment.Change{RaiseBy: 100})
	if !errors.Is(err, segment.ErrUncertain) {
		t.Errorf("a change that cannot be read back: %v, want ErrUncertain", err)
	}
	l.lose.Store(false)
	_, err = s.Update(t.Context(), "order", segment.Change{RaiseBy: 100})
	if errors.Is(err, segment.ErrUncertain) || err == nil {
		t.Errorf("a change that failed before anything was written: %v", err)
	}
	l.blind.Store(false)
	if got, err := s.Look(t.Context(), "order"); err != nil || got.MaxID != 201 {
		t.Errorf("in the end %+v, %v, want one raise since: 201", got, err)
	}
}

func TestReadsAreTheLeadersAndTheKVInterfaceReadsTheSame(t *testing.T) {
	js, bucket := connect(t), bucketName()
	open(t, js, bucket)
	kv, err := js.KeyValue(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := kv.Get(t.Context(), buckets.Own); err != nil || len(e.Value()) == 0 {
		t.Errorf("%v, %v, want the identity", e, err)
	}
	stream, err := js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	if stream.CachedInfo().Config.AllowDirect {
		t.Error("the bucket allows direct gets, which any replica answers")
	}
}

// early is a JetStream that refuses to create a key, though it does not show it: as three replicas do while another
// worker's write is under way.
type early struct{ buckets.Streams }

func (e early) Publish(ctx context.Context, bucket, key string, w buckets.Write) (uint64, error) {
	if key == buckets.Own {
		return e.Streams.Publish(ctx, bucket, key, w)
	}
	return 0, buckets.ErrRevision
}

func TestATagThatIsBeingCreatedExists(t *testing.T) {
	s := openOn(t, early{buckets.OnJetStream(connect(t))}, bucketName())
	for _, revive := range []bool{false, true} {
		_, err := s.Create(t.Context(), segment.Tag{Name: "order", Step: 1, MaxID: 1}, revive)
		if !errors.Is(err, segment.ErrExists) {
			t.Errorf("%v, want ErrExists", err)
		}
	}
}

func TestADamagedEntryIsNotServed(t *testing.T) {
	js, bucket := connect(t), bucketName()
	s := open(t, js, bucket)
	kv, _ := js.KeyValue(t.Context(), bucket)
	for _, value := range []string{"", "not json", `{"mark":-4,"step":10}`, `{"mark":1,"step":0}`} {
		if _, err := kv.PutString(t.Context(), "order", value); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Load(t.Context(), "order", 0, 0); err == nil || errors.Is(err, segment.ErrUnknownTag) {
			t.Errorf("entry %q: %v, %v, want an error that is not 'unknown tag'", value, r, err)
		}
		if _, err := s.Create(t.Context(), segment.Tag{Name: "order", Step: 1, MaxID: 1}, true); err == nil {
			t.Errorf("entry %q: was created again", value)
		}
		if tags, err := s.List(t.Context(), "", 10); err != nil || len(tags) != 1 || !tags[0].Disabled {
			t.Errorf("entry %q: listed as %+v, %v, want it shown as disabled", value, tags, err)
		}
	}
}
