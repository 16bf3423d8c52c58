package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/fleet"
	"github.com/natsid/natsid/internal/fleet/policy"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natstest.Left()...) }

// patience is the time limit for a busy machine.
const patience = 30 * time.Second

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// A site is one namespace: its workers, and their shared state.
type site struct {
	*testing.T
	url string
	ns  subjects.Namespace

	mu   sync.Mutex
	live map[string]bool // by their heartbeats
}

// bucket returns the bucket of the marks.
func (s *site) bucket(js jetstream.JetStream) *buckets.Bucket {
	return buckets.New(buckets.OnJetStream(js), buckets.Config{Name: s.ns.SegmentBucket(), Replicas: 1, Insist: true})
}

func (s *site) beat(name string, live bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[name] = true; !live {
		delete(s.live, name)
	}
}

func (s *site) beats(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.live)), nil
}

var sites = sync.OnceValue(func() *atomic.Int64 { return new(atomic.Int64) })

func newSite(t *testing.T, url string) *site {
	s := &site{T: t, url: url, live: map[string]bool{}}
	s.ns = subjects.Namespace("f" + strconv.FormatInt(sites().Add(1), 10))
	return s
}

// A member is one worker, as far as its policy goes.
type member struct {
	*fleet.Settings
	gate   policy.Gate
	conn   *nats.Conn
	orders orders
	stop   func()
}

// answer lets a connection answer as a worker does.
func (s *site) answer(nc *nats.Conn, name string, honoured func() uint64) {
	s.Helper()
	_, err := nc.Subscribe(s.ns.ServicePing(), func(m *nats.Msg) {
		about := map[string]string{
			subjects.MetaInstance: name, "segment": subjects.Ready,
			subjects.MetaSettings: strconv.FormatUint(honoured(), 10),
		}
		body, _ := json.Marshal(micro.Ping{ServiceIdentity: micro.ServiceIdentity{Metadata: about}})
		_ = m.Respond(body)
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		s.Fatal(err)
	}
	s.beat(name, true)
}

// start starts a worker.
func (s *site) start(name string) *member {
	s.Helper()
	return s.startOn(name, natstest.JetStream(s, s.url))
}

// startOn starts a worker whose settings are on js.
func (s *site) startOn(name string, js jetstream.JetStream) *member {
	s.Helper()
	m := &member{conn: natstest.Connect(s, s.url)}
	m.Settings = fleet.New(fleet.Config{
		Namespace: s.ns, Bucket: s.bucket(js), Conn: m.conn, Gate: &m.gate, Poll: time.Second, Live: s.beats,
		SetStrict: m.orders.set, Doubt: m.orders.doubt,
	})
	s.answer(m.conn, name, m.Honoured)
	m.Begin(s.Context())
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
		s.beat(name, false)
		m.conn.Close()
	})
	s.Cleanup(m.stop)
	return m
}

func rate(n int64) func(*policy.Limit) { return func(l *policy.Limit) { l.Rate = n } }

// must retries a call that may be refused on a busy machine, where a worker answers late.
func (s *site) must(change func() error) {
	s.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = change(); err == nil {
			return
		}
	}
	s.Fatal(err)
}

func (s *site) limit(m *member, tag string, n int64) {
	s.Helper()
	s.must(func() error { return m.SetLimit(s.Context(), tag, rate(n)) })
}

func (m *member) rateOf(tag string) int64 { return m.gate.Rules()[tag].Rate }

// The cases share a server; each has a namespace of its own.
func TestFleet(t *testing.T) {
	url := natstest.Start(t)
	for _, tc := range []struct {
		law  string
		test func(*site)
	}{
		{"a change is heeded by all, and after a restart", everywhere},
		{"what is written while a worker hears nothing is found", missed},
		{"a rate is shared by those who serve", shared},
		{"nothing is loaded before the settings were read", unread},
		{"what cannot be read stays as it was", damaged},
		{"fields of a newer natsid are kept", newer},
		{"a setting that is removed ends", removed},
		{"a listing that lacks the last change is not taken for all", orderListedLate},
		{"changes at once are all made", together},
		{"a strict tag that the bucket forgot is strict again, and the rest is as the bucket has it", forgotten},
		{"a tag is strict once all workers that are found confirm it", confirmed},
		{"what was made strict while a worker heard nothing is known before a first range is used", caughtUp},
		{"a tag that is loose already needs no setting, and none is strict without marks", orderRefused},
	} {
		t.Run(tc.law, func(t *testing.T) {
			if testing.Short() && tc.law == "a rate is shared by those who serve" {
				t.Skip("counts are seconds apart")
			}
			t.Parallel()
			tc.test(newSite(t, url))
		})
	}
}

func everywhere(s *site) {
	a, b := s.start("a"), s.start("b")
	s.limit(a, "order", 100)
	if a.rateOf("order") != 100 {
		s.Error("the worker that changed it does not know it")
	}
	s.limit(b, "", 7) // each tag
	c := s.start("c")
	for name, m := range map[string]*member{"a": a, "b": b, "c": c} {
		eventually(s.T, name+" follows", func() bool {
			return m.rateOf("order") == 100 && m.rateOf("") == 7
		})
	}
	s.limit(c, "order", 0)
	eventually(s.T, "a follows", func() bool { return a.rateOf("order") == 0 })
}

// put writes an entry as `nats kv put` does: without a message to the workers.
func (s *site) put(key, value string) {
	s.Helper()
	js := natstest.JetStream(s, s.url)
	_, err := js.Publish(s.Context(), "$KV."+s.ns.SegmentBucket()+"._natsid.s."+key, []byte(value))
	if err != nil {
		s.Fatal(err)
	}
}

func missed(s *site) {
	a := s.start("a")
	s.put("tag.order", `{"rate":5}`)
	eventually(s.T, "the poll finds it", func() bool { return a.rateOf("order") == 5 })
}

func shared(s *site) {
	a, b := s.start("a"), s.start("b")
	s.limit(a, "order", 10)
	eventually(s.T, "both count both", func() bool { return a.gate.Workers() == 2 && b.gate.Workers() == 2 })
	c := s.start("c")
	eventually(s.T, "all count three", func() bool {
		return a.gate.Workers() == 3 && b.gate.Workers() == 3 && c.gate.Workers() == 3
	})
	a.stop()
	eventually(s.T, "the rest is counted", func() bool { return b.gate.Workers() == 2 && c.gate.Workers() == 2 })
}

func unread(s *site) {
	js := natstest.JetStream(s, s.url)
	spoilt := jetstream.StreamConfig{
		Name: "KV_" + s.ns.SegmentBucket(), Subjects: []string{"$KV." + s.ns.SegmentBucket() + ".>"},
		MaxMsgsPerSubject: 1, MaxAge: time.Hour, DenyDelete: true, AllowDirect: true,
	}
	if _, err := js.CreateStream(s.Context(), spoilt); err != nil {
		s.Fatal(err)
	}
	s.put("tag.order", `{"rate":5}`)
	a := s.start("a")
	if err := a.Known(s.Context()); !errors.Is(err, fleet.ErrUnread) || !a.Unread() {
		s.Errorf("%v, and the settings cannot be read", err)
	}
	spoilt.MaxAge = 0
	if _, err := js.UpdateStream(s.Context(), spoilt); err != nil {
		s.Fatal(err)
	}
	if err := a.Known(s.Context()); err != nil || a.Unread() || a.rateOf("order") != 5 {
		s.Errorf("%v, a rate of %d", err, a.rateOf("order"))
	}
}

func damaged(s *site) {
	a := s.start("a")
	s.limit(a, "order", 5)
	s.limit(a, "", 3)
	s.put("tag.order", `{"rate":`)
	s.put("throttle", `[1]`)
	s.put("tag.new", `{"rate":-1}`)
	s.put("order.order", `{"order":"upwards"}`)
	s.put("tag.mark", `{"rate":1}`)
	eventually(s.T, "a tag whose order cannot be read is strict", func() bool { return isStrict(a, "order") })
	eventually(s.T, "all is read", func() bool { return a.rateOf("mark") == 1 })
	if a.rateOf("order") != 5 || a.rateOf("new") != 0 || a.rateOf("") != 3 {
		s.Errorf("%+v", a.gate.Rules())
	}
	s.limit(a, "order", 6) // which repairs it
	s.limit(a, "", 4)
	if b := s.start("b"); b.rateOf("order") != 6 || b.rateOf("") != 4 {
		s.Errorf("%+v", b.gate.Rules())
	}
}

func newer(s *site) {
	a := s.start("a")
	s.put("tag.order", `{"rate":5,"max_batch":9,"colour":"red"}`)
	eventually(s.T, "it is read", func() bool { return a.rateOf("order") == 5 })
	s.limit(a, "order", 0)
	kv, err := natstest.JetStream(s, s.url).KeyValue(s.Context(), s.ns.SegmentBucket())
	if err != nil {
		s.Fatal(err)
	}
	e, err := kv.Get(s.Context(), "_natsid.s.tag.order")
	if err != nil || string(e.Value()) != `{"colour":"red","max_batch":9}` {
		s.Errorf("%s, %v", e.Value(), err)
	}
}

func together(s *site) {
	a, b := s.start("a"), s.start("b")
	var all sync.WaitGroup
	for i := range 20 {
		m := []*member{a, b}[i%2]
		all.Go(func() {
			s.must(func() error {
				return m.SetLimit(s.Context(), "order", func(l *policy.Limit) { l.Rate++ })
			})
		})
	}
	all.Wait()
	for _, m := range []*member{a, b} {
		eventually(s.T, "all are heeded", func() bool { return m.rateOf("order") == 20 })
	}
}
