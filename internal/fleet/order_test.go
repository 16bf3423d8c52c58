package fleet_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

// orders are the orders set in an allocator.
type orders struct {
	mu      sync.Mutex
	strict  map[string]bool
	doubts  int
	lasting bool
}

func (o *orders) set(tags map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.strict, o.lasting = maps.Clone(tags), false
}

func (o *orders) doubt() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.doubts, o.lasting = o.doubts+1, true
}

// now returns whether a tag is strict, how many doubts there were, and whether one lasts.
func (o *orders) now(tag string) (strict bool, doubts int, doubtful bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.strict[tag], o.doubts, o.lasting
}

func isStrict(m *member, tag string) bool {
	strict, _, doubtful := m.orders.now(tag)
	return strict && !doubtful
}

// setOrder makes a tag strict or loose as a request does.
func setOrder(s *site, m *member, tag string, strict bool) error {
	ctx, cancel := context.WithTimeout(s.Context(), 1500*time.Millisecond)
	defer cancel()
	return m.SetOrder(ctx, tag, strict, strictFrom(tag))
}

// strictFrom returns from when on a tag is strict in these tests: the tag order was loose.
func strictFrom(tag string) (from time.Time) {
	if tag == "order" {
		from = time.Date(2026, 11, 23, 14, 5, 0, 0, time.UTC)
	}
	return from
}

func confirmed(s *site) {
	a, b := s.start("a"), s.start("b")
	s.must(func() error { return setOrder(s, a, "invoice", true) })
	if !isStrict(a, "invoice") || !isStrict(b, "invoice") || isStrict(b, "order") {
		s.Errorf("SetOrder has returned, and of the tags are strict: %v, %v", &a.orders.strict, &b.orders.strict)
	}
	c := natstest.Connect(s, s.url) // hears nothing of settings
	s.answer(c, "c", func() uint64 { return 0 })
	// Where the machine is busy, all are late.
	eventually(s.T, "a and b confirm it in time, and c does not", func() bool {
		began := time.Now()
		err := setOrder(s, a, "order", true)
		e, ok := errors.AsType[*subjects.Error](err)
		if took := time.Since(began); !ok || !strings.Contains(e.Text, `"c"`) || took > 1500*time.Millisecond {
			s.Fatalf("%v after %v, want one that names c, in time", err, took)
		}
		return !strings.Contains(e.Text, `"b"`)
	})
	c.Close() // its heartbeat lasts
	if err := setOrder(s, a, "order", true); err == nil || !strings.Contains(err.Error(), `"c"`) {
		s.Errorf("%v, want one that names c", err)
	}
	s.beat("c", false)
	s.must(func() error { return setOrder(s, b, "order", true) })
	late := s.start("late")
	if !isStrict(late, "order") {
		s.Error("a worker that starts does not know it")
	}
	for _, m := range []*member{a, b, late} {
		for _, tag := range []string{"order", "invoice", "none"} {
			if from := m.StrictFrom(tag); !from.Equal(strictFrom(tag)) {
				s.Errorf("%s is strict from %v on", tag, from)
			}
		}
	}
	s.must(func() error { return setOrder(s, a, "order", false) })
	eventually(s.T, "all hear that it is loose", func() bool {
		return !isStrict(b, "order") && !isStrict(late, "order") && late.StrictFrom("order").IsZero()
	})
	if !isStrict(b, "invoice") {
		s.Error("the other tag is loose, too")
	}
}

// caughtUp checks the first load of a tag by a worker that missed the change.
func caughtUp(s *site) {
	a := s.start("a")
	s.put("order.order", `{"order":"strict"}`)
	if err := a.CatchUp(s.Context()); err != nil || !isStrict(a, "order") {
		s.Errorf("%v, and strict are %v", err, &a.orders.strict)
	}
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if err := a.CatchUp(ctx); err == nil {
		s.Error("it says that it knows, and could not read")
	}
}

func orderRefused(s *site) {
	a := s.start("a")
	if err := setOrder(s, a, "order", false); err != nil {
		s.Error(err)
	}
	bucket := s.bucket(natstest.JetStream(s, s.url))
	if e, err := bucket.Get(s.Context(), "_natsid.s.order.order"); !errors.Is(err, buckets.ErrNoKey) {
		s.Errorf("%+v, %v for a tag that is loose already", e, err)
	}
}

// A member of a cluster may not have an entry yet that its leader describes. Whoever takes its listing for all
// confirms an order that it has not read, and serves the tag loosely until there is another change.
func orderListedLate(s *site) {
	a := s.start("a")
	js := natstest.Behind(s, s.url, s.ns.SegmentBucket())
	late := s.startOn("late", js)
	s.must(func() error { return setOrder(s, a, "order", true) })
	if !isStrict(late, "order") {
		s.Error("all have confirmed that the tag is strict, and one does not know of it")
	}
	if again := s.startOn("again", js); !isStrict(again, "order") {
		s.Error("a worker that starts does not know that the tag is strict")
	}
}
