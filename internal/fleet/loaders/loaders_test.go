package loaders

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/testkit/ledger"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
	"github.com/natsid/natsid/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natstest.Left()...) }

var strictTag = segment.Tag{Name: "a", Step: 100, MaxID: 1, Rules: segment.Rules{Strict: true}}

// deadline is that of requests. It is long, since the machine may be busy.
const deadline = 10 * time.Second

// A worker is one member of a ring, on a store of its own view that counts its loads.
type worker struct {
	*Ring
	conn  *nats.Conn
	store segment.Store
	alloc *segment.Allocator
	loads atomic.Int64
	slow  atomic.Int64 // a time.Duration that each load takes
	marks atomic.Pointer[string]
	// cannot says that it cannot load.
	cannot atomic.Bool
	stop   func()
}

// marks is the identity of those of all workers, unless a test says otherwise.
var marks = "M1"

type counted struct {
	segment.Store
	loads, slow *atomic.Int64
}

func (c counted) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (segment.Loaded, error) {
	c.loads.Add(1)
	time.Sleep(time.Duration(c.slow.Load()))
	return c.Store.LoadStrict(ctx, tag, join, floor)
}

// fleet starts workers on one store, with the strict tag a, which know one another.
func fleet(t *testing.T, n int) (workers []*worker) {
	t.Helper()
	url, store := natstest.Start(t), new(segmenttest.Memory)
	if _, err := store.Create(t.Context(), strictTag, false); err != nil {
		t.Fatal(err)
	}
	for range n {
		w := &worker{conn: natstest.Connect(t, url), store: store}
		w.Ring = New(Config{
			Namespace: subjects.DefaultNamespace, Conn: w.conn,
			Segments: func() *segment.Allocator { return w.alloc },
			Marks:    func() string { return *w.marks.Load() },
			Loads:    func() bool { return !w.cannot.Load() },
		})
		w.marks.Store(&marks)
		w.alloc = segment.New(segment.Config{Store: w.Store(counted{store, &w.loads, &w.slow}), Deadline: deadline})
		w.alloc.See(strictTag)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		w.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() { w.stop(); w.alloc.Close() })
		workers = append(workers, w)
	}
	for _, w := range workers {
		w.await(t, n-1)
	}
	return workers
}

// await waits until a worker has heard so many others.
func (w *worker) await(t *testing.T, others int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		n := w.knows()
		if n == others {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a worker has heard %d others, want %d", n, others)
		}
	}
}

// storm lets callers request IDs of the tag from all workers, and judges their order.
func storm(t *testing.T, workers []*worker, callers, requests int) {
	t.Helper()
	var order ledger.Order
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range requests {
				n := 1 + rand.Int64N(5)
				had := order.Begin()
				got, err := segmenttest.Take(t.Context(), workers[rand.IntN(len(workers))].alloc, "a", n)
				if err != nil || len(got) != 1 || got[0].Len() != n {
					t.Errorf("%v, %v, want %d IDs", got, err, n)
					return
				}
				if _, err := order.End(had, got[0].Start, got[0].End-1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if r := order.Report(); r.Inversions > 0 || r.Answers != int64(callers*requests) {
		t.Errorf("%+v", r)
	}
}

func TestStrictIDsRiseWhoeverLoadsThem(t *testing.T) {
	workers := fleet(t, 3)
	storm(t, workers, 12, 100)
	for _, w := range workers {
		t.Logf("%d loads, passed on to %q", w.loads.Load(), w.loader("a"))
	}
}

func TestAWorkerLoadsForItselfWhereNobodyAnswers(t *testing.T) {
	workers := fleet(t, 2)
	w := workers[slices.IndexFunc(workers, func(w *worker) bool { return w.loader("a") != "" })]
	other := workers[0]
	if other == w {
		other = workers[1]
	}
	ask := func(most time.Duration) {
		t.Helper()
		began := time.Now()
		_, err := segmenttest.Take(t.Context(), w.alloc, "a", 1)
		if err != nil || time.Since(began) > most+5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	}
	passed := false
	for range 10 { // a busy machine may be late
		before := w.loads.Load()
		if ask(0); w.loads.Load() == before {
			passed = other.loads.Load() > 0
			break
		}
		w.await(t, 1)
	}
	if !passed {
		t.Fatal("the other worker is there, and did not load")
	}
	before := w.loads.Load()
	other.stop()
	ask(0) // no responders
	if w.loads.Load() != before+1 {
		t.Error("it did not load for itself")
	}
	silent, err := w.conn.SubscribeSync(wire.Loader(w.cfg.Namespace, other.name))
	if err != nil {
		t.Fatal(err)
	}
	w.hear(&nats.Msg{Data: []byte(other.name + " " + marks)})
	began := time.Now()
	ask(patience)
	if waited := time.Since(began); w.loads.Load() != before+2 || waited < patience {
		t.Errorf("a loader that is silent: %d loads, after %v", w.loads.Load()-before, waited)
	}
	if n, _, _ := silent.Pending(); n != 1 || w.loader("a") != "" {
		t.Errorf("it was asked %d times, and is chosen still: %q", n, w.loader("a"))
	}
}

// Where each load takes longer than a worker waits at least, it must not load beside the loader: their compare-and-sets
// would fight.
func TestAWorkerWaitsForALoaderAsLongAsLoadsTake(t *testing.T) {
	workers := fleet(t, 2)
	asker, loader := workers[0], workers[1]
	if asker.loader("a") == "" {
		asker, loader = loader, asker
	}
	for _, w := range workers {
		w.slow.Store(int64(patience * 5 / 4))
	}
	const requests = 12
	for range requests {
		asker.hear(&nats.Msg{Data: []byte(loader.name + " " + marks)}) // it says so all the time
		if _, err := segmenttest.Take(t.Context(), asker.alloc, "a", 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := asker.loads.Load(); n > requests/2 {
		t.Errorf("%d of %d loads were its own", n, requests)
	}
}

// A worker that has just come may load before it has heard of the others, and they outrun it.
func TestALoadThatIsOutrunIsPassedOnOnceALoaderIsHeard(t *testing.T) {
	workers := fleet(t, 2)
	loser := workers[slices.IndexFunc(workers, func(w *worker) bool { return w.loader("a") != "" })]
	alloc := segment.New(segment.Config{Store: loser.Store(outrun{loser.store}), Deadline: deadline})
	defer alloc.Close()
	alloc.See(strictTag)
	loser.mu.Lock()
	clear(loser.heard)
	loser.mu.Unlock()
	if got, err := segmenttest.Take(t.Context(), alloc, "a", 1); err != nil {
		t.Error(got, err)
	}
	if s, _ := alloc.StatsOf("a"); s.Errors > 0 {
		t.Errorf("a load failed: %v", s.LastError)
	}
}

// An outrun store is one in which others win each compare-and-set.
type outrun struct{ segment.Store }

func (outrun) LoadStrict(ctx context.Context, _ string, join func() int64, _ int64) (segment.Loaded, error) {
	for ctx.Err() == nil {
		join()
		time.Sleep(time.Millisecond)
	}
	return segment.Loaded{}, ctx.Err()
}

// A load of the worker's own needs time, too.
func TestALoaderGetsHalfOfTheTimeAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var r Ring
		check := func(ctx context.Context, what string, want time.Duration) {
			t.Helper()
			if got := r.patience(ctx); got != want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		check(t.Context(), "before the first load, without end", patience)
		check(ctx, "before the first load", 500*time.Millisecond)
		r.slowest.Note(100 * time.Millisecond)
		check(ctx, "where a load takes 0.1 s", 300*time.Millisecond)
		r.slowest.Note(time.Minute)
		check(ctx, "where a load takes a minute", 500*time.Millisecond)
		for range 200 {
			r.slowest.Note(10 * time.Millisecond)
		}
		check(ctx, "once loads are fast again", patience)
	})
}

func TestWhatWasPassedOnIsNotPassedOnAgain(t *testing.T) {
	workers := fleet(t, 2)
	w := workers[slices.IndexFunc(workers, func(w *worker) bool { return w.loader("a") != "" })]
	w.slow.Store(int64(patience))
	// By one who thinks that w loads the tag.
	inbox := nats.NewInbox()
	answers, err := w.conn.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.conn.PublishRequest(wire.Loader(w.cfg.Namespace, w.name), inbox, []byte("7 M1 a")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(deadline); w.loads.Load() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n, _, _ := answers.Pending(); w.loader("a") != "" && n == 0 {
		t.Error("a load is passed on though a message waits for it")
	}
	m, err := answers.NextMsg(deadline)
	if err != nil || w.loads.Load() != 1 {
		t.Fatalf("%v, after %d loads of its own", err, w.loads.Load())
	}
	if string(m.Data) != `{"marks":"M1","start":"1","end":"8","step":100}` {
		t.Errorf("%s", m.Data)
	}
	if w.loader("a") != "" {
		t.Error("the next load is passed on, and another message may join it")
	}
	w.mu.Lock()
	clear(w.heard) // so that the other worker comes anew
	w.mu.Unlock()
	if w.await(t, 1); w.loader("a") == "" {
		t.Error("a worker has come, and nothing is passed on to it")
	}
}

func TestMalformedMessagesGetNoID(t *testing.T) {
	w := fleet(t, 1)[0]
	for err := nats.ErrNoResponders; errors.Is(err, nats.ErrNoResponders); { // until it listens
		_, err = w.conn.Request(wire.Loader(w.cfg.Namespace, w.name), []byte("0 M1 a"), deadline)
	}
	tooMany := strconv.Itoa(segment.MaxStep) + "0 M1 a"
	// A tag that is not strict has IDs in memory, which may be older than the message.
	if _, err := w.store.Create(t.Context(), segment.Tag{Name: "b", Step: 100, MaxID: 1}, false); err != nil {
		t.Fatal(err)
	}
	const nothing = `{"marks":"","start":"0","end":"0","step":0}`
	for _, body := range []string{
		"", "7", "7 a", "7 M2 a", "x M1 a", "0 M1 a", "-1 M1 a", "7 M1 b", "7 M1 a b", "7  a", tooMany,
	} {
		m, err := w.conn.Request(wire.Loader(w.cfg.Namespace, w.name), []byte(body), 50*time.Millisecond)
		if err == nil && string(m.Data) != nothing || err != nil && !errors.Is(err, nats.ErrTimeout) {
			t.Errorf("%q: %v, %v", body, m, err)
		}
	}
	for _, name := range []string{"", "a.b M1", "> M1", "* M1", "a", "a M2", " M1", "a M1 b", w.name + " M1"} {
		w.hear(&nats.Msg{Data: []byte(name)})
	}
	if w.loader("a") != "" || w.loads.Load() != 0 {
		t.Errorf("heard %v, %d loads", w.heard, w.loads.Load())
	}
}

func TestNothingIsPassedBetweenDifferentMarks(t *testing.T) {
	workers := fleet(t, 2)
	asker, loader := workers[0], workers[1]
	if asker.loader("a") == "" {
		asker, loader = loader, asker
	}
	take := func(by *worker) {
		t.Helper()
		before := by.loads.Load()
		if _, err := segmenttest.Take(t.Context(), asker.alloc, "a", 1); err != nil || by.loads.Load() == before {
			t.Errorf("%v; the other worker loaded", err)
		}
	}
	for what, of := range map[string]string{"it loads from other marks": "M2", "it must issue nothing": ""} {
		loader.marks.Store(&of)
		asker.hear(&nats.Msg{Data: []byte(loader.name + " M1")}) // of a moment ago
		t.Log(what)
		take(asker)
		loader.hear(&nats.Msg{Data: []byte(asker.name + " M1")})
		asker.hear(&nats.Msg{Data: []byte(loader.name + " " + of)})
	}
	var nothing string
	asker.marks.Store(&nothing)
	loader.marks.Store(&marks)
	asker.hear(&nats.Msg{Data: []byte(loader.name + " M1")})
	take(asker)
	if loader.loads.Load() > 0 {
		t.Errorf("%d loads for another worker", loader.loads.Load())
	}
}

// Whoever answers, a range of other marks is not taken, and none below the floor.
func TestAnAnswerOfOtherMarksOrBelowTheFloorIsNotTaken(t *testing.T) {
	w := fleet(t, 1)[0]
	for i := 0; w.loader("a") == ""; i++ {
		w.hear(&nats.Msg{Data: fmt.Appendf(nil, "other%d M1", i)})
	}
	other, then := w.loader("a"), marks
	var of string
	forged, err := w.conn.Subscribe(wire.Loader(w.cfg.Namespace, other), func(m *nats.Msg) {
		w.marks.Store(new(then))
		_ = m.Respond([]byte(`{"marks":"` + of + `","start":"900","end":"901","step":1}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = forged.Unsubscribe() }()
	for _, of = range []string{"M1", "M2"} {
		if l, ok := w.pass(t.Context(), other, "a", func() int64 { return 1 }); ok != (of == "M1") {
			t.Errorf("an answer of %s: %+v, %t", of, l, ok)
		}
	}
	for floor, passed := range map[int64]bool{900: true, 901: false} {
		of = "M1"
		l, err := w.Store(w.store).LoadStrict(t.Context(), "a", func() int64 { return 1 }, floor)
		if err != nil || l.Passed != passed || l.Start < floor {
			t.Errorf("an answer of 900 at the floor %d: %+v, %v", floor, l, err)
		}
	}
	then = "M2"
	if l, ok := w.pass(t.Context(), other, "a", func() int64 { return 1 }); ok {
		t.Errorf("marks that changed before the answer: %+v", l)
	}
}

// A request that comes once the message was sent may have been sent after the answer to one that the loader served.
func TestRequestsJoinALoadThatIsPassedOnOnlyBeforeItIsSent(t *testing.T) {
	w := fleet(t, 1)[0]
	for i := 0; w.loader("a") == ""; i++ {
		w.hear(&nats.Msg{Data: fmt.Appendf(nil, "other%d M1", i)})
	}
	joined := 0
	sent, err := w.conn.Subscribe(wire.Loader(w.cfg.Namespace, w.loader("a")), func(m *nats.Msg) {
		n := 0
		if _, err := fmt.Sscan(string(m.Data), &n); err != nil || n != 3 || joined != 1 {
			t.Errorf("%q was sent after %d joins, want 3 IDs after 1", m.Data, joined)
		}
		_ = m.Respond(fmt.Appendf(nil, `{"marks":"M1","start":"900","end":"%d","step":1}`, 900+n))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sent.Unsubscribe() }()
	l, err := w.Store(w.store).LoadStrict(t.Context(), "a", func() int64 { joined++; return 3 }, 0)
	if err != nil || !l.Passed || l.Range != (segment.Range{Start: 900, End: 903}) || joined != 1 {
		t.Errorf("%+v, %v, after %d joins; want 900 to 902 after 1", l, err, joined)
	}
}

// Store returns a store whose strict loads are passed on.
func (r *Ring) Store(store segment.Store) segment.Store { return passing{store, r} }

type passing struct {
	segment.Store
	ring *Ring
}

// LoadStrict implements [segment.Store].
func (p passing) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (segment.Loaded, error) {
	return p.ring.LoadStrict(ctx, tag, join, floor, p.Store.LoadStrict)
}
