package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/kvstore"
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
	if mismatch, err := s.Open(t.Context()); err != nil || mismatch != "" {
		t.Fatal(err, mismatch)
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
}

func (l *lossy) Last(ctx context.Context, bucket, key string) (buckets.Entry, error) {
	if l.blind.Load() && l.wrote.Load() {
		return buckets.Entry{}, context.DeadlineExceeded
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

func TestALoadWhoseAckIsLostIsUsedByTheNextOneOfThatWorkerAlone(t *testing.T) {
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
	for i, store := range []segment.Store{sure, s, s} {
		want := []int64{11, 1, 21}[i]
		if r, err := store.Load(t.Context(), "order", 0, 0); err != nil || r.Start != want {
			t.Errorf("load %d after it: %v, %v, want it from %d", i, r, err, want)
		}
	}
}

func TestARangeBelowARaiseIsNotUsedThoughItWasReserved(t *testing.T) {
	js, bucket := connect(t), bucketName()
	l := &lossy{Streams: buckets.OnJetStream(js)}
	s := openOn(t, l, bucket)
	create(t, s, segment.Tag{Name: "order", Step: 10, MaxID: 1})
	l.lose.Store(true)
	if r, err := s.Load(t.Context(), "order", 0, 0); err == nil {
		t.Fatalf("loaded %v", r)
	}
	l.lose.Store(false)
	if _, err := open(t, js, bucket).Update(t.Context(), "order", segment.Change{MaxID: 5000}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Load(t.Context(), "order", 0, 0); err != nil || r.Start < 5000 {
		t.Errorf("%v, %v after a raise to 5000", r, err)
	}
}

func TestAMarkIsReplacedOnlyAtTheRevisionThatWasRead(t *testing.T) {
	s := open(t, connect(t), bucketName())
	none, err := s.Mark(t.Context(), "order")
	if err != nil || none.Revision != 0 {
		t.Fatalf("%+v, %v", none, err)
	}
	none.High = 100
	if err := s.SetMark(t.Context(), "order", none); err != nil {
		t.Fatal(err)
	}
	for _, revision := range []uint64{0, 1} {
		m := segment.Mark{High: 50, Revision: revision}
		if err := s.SetMark(t.Context(), "order", m); !errors.Is(err, segment.ErrMarkMoved) {
			t.Errorf("at revision %d: %v, want ErrMarkMoved", revision, err)
		}
	}
	if m, err := s.Mark(t.Context(), "order"); err != nil || m.High != 100 {
		t.Errorf("%+v, %v, want 100", m, err)
	}
}

func TestLoadsWhoseAcksAreLostMoveTheMarkOnce(t *testing.T) {
	js, bucket := connect(t), bucketName()
	l := &lossy{Streams: buckets.OnJetStream(js)}
	s := openOn(t, l, bucket)
	create(t, s, segment.Tag{Name: "order", Step: 10, MaxID: 1})
	l.lose.Store(true)
	mark, served := int64(0), int64(0)
	for n := range int64(40) {
		if r, err := s.Load(t.Context(), "order", 1000*n, 0); err == nil {
			served += r.Len()
		}
		tag, err := s.Look(t.Context(), "order")
		if err != nil {
			t.Fatal(err)
		}
		mark = tag.MaxID
	}
	if lost := mark - 1 - served; lost > 39_000 {
		t.Errorf("of %d IDs below the mark %d were loaded", mark-1, served)
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

func TestReadsAreTheLeaders(t *testing.T) {
	js, bucket := connect(t), bucketName()
	open(t, js, bucket)
	stream, err := js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	if stream.CachedInfo().Config.AllowDirect {
		t.Error("the bucket allows direct gets, which any replica answers")
	}
}

func TestAnExistingBucketIsUsedAsItIs(t *testing.T) {
	js, bucket := connect(t), bucketName()
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	s := kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: bucket, Replicas: 3})
	mismatch, err := s.Open(t.Context())
	if want := "bucket " + bucket + " has 1 replicas and a TTL of 0s, wanted 3 and 0s"; err != nil || mismatch != want {
		t.Fatalf("mismatch %q, %v, want %q", mismatch, err, want)
	}
	if _, err := s.Create(t.Context(), segment.Tag{Name: "order", Step: 1, MaxID: 1}, false); err != nil {
		t.Error(err)
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

// revision returns the last revision of a bucket.
func revision(t *testing.T, js jetstream.JetStream, bucket string) uint64 {
	t.Helper()
	stream, err := js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.LastSeq
}

func TestABucketWithATTLIsRefused(t *testing.T) {
	js, name := connect(t), bucketName()
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: name, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	s := kvstore.New(buckets.OnJetStream(js), kvstore.Config{Bucket: name})
	for range 2 {
		if _, err := s.Load(t.Context(), "order", 0, 0); !errors.Is(err, buckets.ErrUnfit) ||
			!errors.Is(s.Trouble(), buckets.ErrUnfit) {
			t.Errorf("marks that vanish after an hour: %v, want ErrUnfit; trouble: %v", err, s.Trouble())
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
