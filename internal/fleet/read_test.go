package fleet_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/fleet"
	"github.com/natsid/natsid/internal/fleet/policy"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// counted is a JetStream that counts how it is read.
type counted struct {
	buckets.Streams
	all, lists, nexts atomic.Int64
	from              atomic.Uint64 // of the last Next
}

func (c *counted) Info(ctx context.Context, bucket string) (buckets.Info, error) {
	c.all.Add(1)
	return c.Streams.Info(ctx, bucket)
}

func (c *counted) Last(ctx context.Context, bucket, key string) (buckets.Entry, error) {
	c.all.Add(1)
	return c.Streams.Last(ctx, bucket, key)
}

func (c *counted) List(ctx context.Context, bucket, prefix string) ([]buckets.Entry, error) {
	c.all.Add(1)
	c.lists.Add(1)
	return c.Streams.List(ctx, bucket, prefix)
}

func (c *counted) Next(ctx context.Context, bucket, prefix string, from uint64) (buckets.Entry, error) {
	c.all.Add(1)
	c.nexts.Add(1)
	c.from.Store(from)
	return c.Streams.Next(ctx, bucket, prefix, from)
}

// took returns how many requests, listings and requests for the next entry f makes.
func (c *counted) took(f func()) (all, lists, nexts int64) {
	all, lists, nexts = c.all.Load(), c.lists.Load(), c.nexts.Load()
	f()
	return c.all.Load() - all, c.lists.Load() - lists, c.nexts.Load() - nexts
}

func TestWhatHasChangedIsFoundByOneRequestForEachChangeAndOne(t *testing.T) {
	s := newSite(t, natstest.Start(t))
	js := natstest.JetStream(t, s.url)
	streams, known := &counted{Streams: buckets.OnJetStream(js)}, new(orders)
	bucket := buckets.New(streams, buckets.Config{Name: s.ns.SegmentBucket()})
	gate := new(policy.Gate)
	a := fleet.New(fleet.Config{
		Namespace: s.ns, Bucket: bucket, Conn: natstest.Connect(t, s.url), Gate: gate, Poll: time.Minute,
		Live: s.beats, SetStrict: known.set,
	})
	if _, err := bucket.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.put("order.early", `{"order":"strict"}`)
	a.Begin(t.Context())
	if strict, _, _ := known.now("early"); !strict {
		t.Fatal("what was there at the start is not known")
	}
	catchUp := func() {
		t.Helper()
		if err := a.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if all, _, _ := streams.took(catchUp); all != 1 {
		t.Errorf("%d requests where nothing has changed, want one", all)
	}
	var load uint64
	for i := range 1000 {
		var err error
		if load, err = bucket.Put(t.Context(), fmt.Sprint("tag", i%50), []byte(`{"mark":1,"step":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	if all, _, _ := streams.took(catchUp); all != 1 {
		t.Errorf("%d requests after 1000 loads, want one", all)
	}
	a.Begin(t.Context()) // looks, as polls do
	if catchUp(); streams.from.Load() <= load {
		t.Error("the leader is to look through the loads again that were made before the last poll")
	}
	const changes = 20
	for i := range changes {
		s.put(fmt.Sprint("order.late", i), `{"order":"strict"}`)
	}
	if all, lists, nexts := streams.took(catchUp); lists != 0 || nexts != changes+1 || all != nexts {
		t.Errorf("%d requests, %d of them listings, for %d changes", all, lists, changes)
	}
	if all, _, _ := streams.took(catchUp); all != 1 {
		t.Errorf("%d requests once they are known, want one", all)
	}
	for i := range changes {
		if strict, _, _ := known.now(fmt.Sprint("late", i)); !strict {
			t.Errorf("late%d is loose", i)
		}
	}
	if strict, _, _ := known.now("early"); !strict {
		t.Error("what was known before is forgotten")
	}
}

// forgotten checks the effect of an old bucket, restored under workers: its revisions are lower.
func forgotten(s *site) {
	js := natstest.JetStream(s, s.url)
	a, b := s.start("a"), s.start("b")
	s.limit(a, "order", 5)
	s.must(func() error { return setOrder(s, a, "new", true) })
	s.must(func() error { return setOrder(s, a, "later", true) })
	eventually(s.T, "b knows them", func() bool { return isStrict(b, "new") && isStrict(b, "later") })
	if err := js.DeleteStream(s.Context(), "KV_"+s.ns.SegmentBucket()); err != nil {
		s.Fatal(err)
	}
	if _, err := s.bucket(js).Open(s.Context()); err != nil {
		s.Fatal(err)
	}
	s.put("order.later", `{"order":"loose"}`)
	s.put("tag.order", `{"rate":3}`)
	s.must(func() error { return a.Reassert(s.Context()) })
	s.must(func() error { return b.Reread(s.Context()) })
	for name, m := range map[string]*member{"a": a, "b": b, "c": s.start("c")} {
		if !isStrict(m, "new") || !isStrict(m, "later") || m.rateOf("order") != 3 {
			s.Errorf("%s: strict are %v, a rate of %d", name, &m.orders.strict, m.rateOf("order"))
		}
	}
	s.put("tag.order", `{"rate":4}`)
	eventually(s.T, "changes are found from then on", func() bool {
		return a.rateOf("order") == 4 && b.rateOf("order") == 4
	})
}

// removed checks the effect of `nats kv del`.
func removed(s *site) {
	a := s.start("a")
	s.limit(a, "order", 5)
	s.must(func() error { return setOrder(s, a, "order", true) })
	kv, err := natstest.JetStream(s, s.url).KeyValue(s.Context(), s.ns.SegmentBucket())
	if err != nil {
		s.Fatal(err)
	}
	for _, key := range []string{"_natsid.s.tag.order", "_natsid.s.order.order"} {
		if err := kv.Delete(s.Context(), key); err != nil {
			s.Fatal(err)
		}
	}
	eventually(s.T, "it ends", func() bool { return a.rateOf("order") == 0 && !isStrict(a, "order") })
	s.must(func() error { return setOrder(s, a, "order", true) })
	s.limit(a, "order", 6)
	if b := s.start("b"); b.rateOf("order") != 6 || !isStrict(b, "order") {
		s.Errorf("a rate of %d, strict are %v", b.rateOf("order"), &b.orders.strict)
	}
}
