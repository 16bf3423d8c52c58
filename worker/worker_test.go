package worker_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, natstest.Left()...)
}

const (
	maxBatch = 50_000
	deadline = time.Second
	// slack is what a busy machine may add to a time.
	slack = 20 * time.Second
)

// layout has room for two worker numbers and 16 businesses.
var layout = snowflake.Layout{Time: 41, Worker: 1, Business: 4, Sequence: 12, Epoch: snowflake.LeafEpoch, Unit: 1}

// startProxied starts a server, and a proxy in front of it.
func startProxied(t *testing.T) (url string, proxy *natsproxy.Proxy) {
	t.Helper()
	url = natstest.Start(t)
	proxy, err := natsproxy.Start(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return url, proxy
}

// connect returns a connection that sends any subject, well formed or not.
func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	return natstest.Connect(t, url, nats.SkipSubjectValidation())
}

// newStore returns a store with the tag order, of step 10.
func newStore(t *testing.T) *segmenttest.Faulty {
	t.Helper()
	store := &segmenttest.Faulty{Store: new(segmenttest.Memory)}
	if _, err := store.Create(t.Context(), segment.Tag{Name: "order", Step: 10, MaxID: 1}, false); err != nil {
		t.Fatal(err)
	}
	return store
}

// A rig is a worker, what it depends on, and a caller.
type rig struct {
	*testing.T
	caller   *nats.Conn
	dials    atomic.Int64 // connections that the worker made
	store    *segmenttest.Faulty
	issuer   *issuer.Issuer
	worker   *worker.Worker
	offset   atomic.Int64       // of the worker's clock, in ms
	number   atomic.Int64       // worker number; negative for none
	answers  chan worker.Answer // the first 1000 that it observed
	parked   func() int         // segment requests that wait
	throttle atomic.Int64
	// turnAway makes the allocator leave requests to others, and admit ends that.
	turnAway func(waiting bool)
	admit    func()
	follow   func() // makes the allocator follow the store
	stop     func() // stops the worker
}

// An edit changes the settings of a rig before it starts.
type edit = func(*segment.Config, *worker.Config)

// start runs a worker with the number, which serves once start returns.
func start(t *testing.T, url string, number int, store *segmenttest.Faulty, edits ...edit) *rig {
	t.Helper()
	r := launch(t, url, number, store, edits...)
	r.eventually("serve snowflakes", func() bool { return r.worker.Trouble(worker.Snowflake) == nil })
	if err := r.conn().Flush(); err != nil {
		r.Fatal(err)
	}
	return r
}

// conn returns the connection on which the worker serves.
func (r *rig) conn() *nats.Conn { return r.worker.Conn() }

// over makes the worker serve by way of another address, as of a proxy.
func over(url string, more ...nats.Option) edit {
	return func(_ *segment.Config, cfg *worker.Config) {
		cfg.Dial = func(_ []string, opts ...nats.Option) (*nats.Conn, error) {
			return nats.Connect(url, append(opts, more...)...)
		}
	}
}

// launch runs a worker with the number.
func launch(t *testing.T, url string, number int, store *segmenttest.Faulty, edits ...edit) *rig {
	t.Helper()
	r := &rig{T: t, caller: connect(t, url), store: store}
	r.answers = make(chan worker.Answer, 1000)
	r.number.Store(int64(number))
	r.issuer = issuer.New(deadline, 100, func() int64 { return time.Now().UnixMilli() + r.offset.Load() })
	r.issuer.Use(r.generator(time.Hour))
	segments := segment.Config{
		Store: store, Deadline: deadline, LoadTimeout: deadline * 2 / 3,
		MaxStep: 1, // ranges stay small
	}
	cfg := worker.Config{
		Namespace: subjects.DefaultNamespace, Version: "1.2.3",
		Store: store, Snowflakes: r.issuer, Layout: layout, MaxBatch: maxBatch, Deadline: deadline,
		Number: func() (int, bool, any) {
			n := int(r.number.Load())
			return n, n >= 0, map[string]int{"number": n}
		},
		Instance: func() string { return "w1" }, State: func() map[string]string { return map[string]string{} },
		Ask: connect(t, url), Reasons: new(worker.Reasons),
		SetThrottle: func(_ context.Context, rate int64) error { r.throttle.Store(rate); return nil },
		Overloaded:  func(worker.Mode) {},
		CannotLoad:  func() error { return nil }, Registry: func() string { return "r" },
		Observe: func(a worker.Answer) {
			select {
			case r.answers <- a:
			default:
			}
		},
	}
	for _, f := range append([]edit{over(url)}, edits...) {
		f(&segments, &cfg)
	}
	dial := cfg.Dial
	cfg.Dial = func(announced []string, opts ...nats.Option) (*nats.Conn, error) {
		nc, err := dial(announced, append(opts, nats.IgnoreDiscoveredServers())...)
		if err == nil {
			r.dials.Add(1)
		}
		return nc, err
	}
	allocator := segment.New(segments)
	cfg.Segments = allocator
	r.parked = func() int {
		total, _ := allocator.Busiest(0)
		return total.Waiting
	}
	cfg.Limits = worker.NewLimits(allocator.RulesOf, r.throttle.Load)
	r.turnAway, r.admit = allocator.TurnAway, allocator.Admit
	r.worker = worker.New(cfg)
	r.run(allocator)
	return r
}

// run runs the worker until stop is called, at the latest when the test ends.
func (r *rig) run(allocator *segment.Allocator) {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.worker.Run(ctx) }()
	r.follow = func() { go allocator.Follow(ctx) }
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		allocator.Close()
	})
	r.Cleanup(r.stop)
}

// generator returns one whose window ends after d.
func (r *rig) generator(d time.Duration) *snowflake.Generator {
	r.Helper()
	now := time.Now()
	from, until := now.UnixMilli(), now.Add(d).UnixMilli()
	g, err := snowflake.NewGenerator(layout, int(r.number.Load()), from, until, snowflake.DefaultMaxAhead)
	if err != nil {
		r.Fatal(err)
	}
	return g
}

func (r *rig) eventually(what string, cond func() bool) {
	r.Helper()
	wait.Until(r, "the worker must "+what, cond)
}

// A reply is what crossed the wire.
type reply struct {
	body, code, text string
	retryAfter       time.Duration
	took             time.Duration
	maxBatch         int
}

func read(m *nats.Msg) reply {
	got := reply{body: string(m.Data)}
	if e := subjects.ParseError(m.Header); e != nil {
		got.code, got.text, got.retryAfter, got.maxBatch = e.Code.String(), e.Text, e.RetryAfter, e.MaxBatch
	}
	return got
}

func (r *rig) try(subject, body string) (reply, error) {
	begin := time.Now()
	m, err := r.caller.Request(subject, []byte(body), time.Minute)
	if err != nil {
		return reply{}, err
	}
	got := read(m)
	got.took = time.Since(begin)
	return got, nil
}

func (r *rig) ask(subject, body string) reply {
	r.Helper()
	got, err := r.try(subject, body)
	if err != nil {
		r.Fatalf("%q %.20q: %v", subject, body, err)
	}
	return got
}

// send sends a message, and returns its reply.
func (r *rig) send(m *nats.Msg) reply {
	r.Helper()
	got, err := r.caller.RequestMsg(m, time.Minute)
	if err != nil {
		r.Fatalf("%s: %v", m.Subject, err)
	}
	return read(got)
}

// wantRefusal checks that a reply is an error of that code, and nothing else.
func (r *rig) wantRefusal(got reply, code string) {
	r.Helper()
	printable := !strings.ContainsFunc(got.text, func(c rune) bool { return c < ' ' || c > '~' })
	if got.code != code || got.body != "" || got.text == "" || !printable || len(got.text) > 400 {
		r.Errorf("code %q, text %q, body %.40q; want code %s, a short reason in printable ASCII, no body",
			got.code, got.text, got.body, code)
	}
}

// ids checks that a reply is n IDs as runs, and returns the runs.
func (r *rig) ids(got reply, n int64) []subjects.Run {
	r.Helper()
	runs, err := subjects.ParseRuns([]byte(got.body))
	var sum int64
	for _, run := range runs {
		sum += run.Len()
	}
	if err != nil || sum != n || got.code != "" || got.text != "" {
		r.Fatalf("%q (%s %s): %d IDs, %v, want %d", got.body, got.code, got.text, sum, err, n)
	}
	return runs
}

// one requests one ID and returns it.
func (r *rig) one(subject string) subjects.ID {
	r.Helper()
	return r.ids(r.ask(subject, ""), 1)[0].First
}

// slowly makes every load take d, or hang until its context ends.
func slowly(d time.Duration) segmenttest.LoadHook {
	return func(ctx context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
		select {
		case <-time.After(d):
			return load()
		case <-ctx.Done():
			return segment.Range{}, ctx.Err()
		}
	}
}

const hang = time.Hour
