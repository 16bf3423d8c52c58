package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// A worker contends for tags on a store of its own view that counts its loads.
type worker struct {
	*StrictTags
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

// fleet starts workers on one store, with the strict tag a.
func fleet(t *testing.T, n int) (workers []*worker) {
	t.Helper()
	url, store := natstest.Start(t), new(segmenttest.Memory)
	if _, err := store.Create(t.Context(), strictTag, false); err != nil {
		t.Fatal(err)
	}
	for range n {
		w := &worker{conn: natstest.Connect(t, url), store: store}
		w.StrictTags = NewStrictTags(StrictConfig{
			Namespace: subjects.DefaultNamespace, Conn: w.conn,
			Segments: func() *segment.Allocator { return w.alloc },
			Marks:    func() string { return *w.marks.Load() },
			Loads:    func() bool { return !w.cannot.Load() },
		})
		w.marks.Store(&marks)
		w.alloc = segment.New(segment.Config{Store: w.Over(counted{store, &w.loads, &w.slow}), Deadline: deadline})
		w.alloc.See(strictTag)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		w.stop = func() {
			cancel()
			running.Wait()
		}
		t.Cleanup(func() { w.stop(); w.alloc.Close() })
		workers = append(workers, w)
	}
	return workers
}

// pair starts a worker that asks the other one for loads of the tag a.
func pair(t *testing.T) (asker, loader *worker) {
	t.Helper()
	workers := fleet(t, 2)
	asker, loader = workers[0], workers[1]
	loader.lead("a")
	if err := loader.conn.Flush(); err != nil || !asker.overtaken("a") {
		t.Fatal("it does not ask", err)
	}
	return asker, loader
}

// take takes an ID of the tag a, and returns how many loads that cost this worker.
func (w *worker) take(t *testing.T) (loads int64) {
	t.Helper()
	before := w.loads.Load()
	if _, err := segmenttest.Take(t.Context(), w.alloc, "a", 1); err != nil {
		t.Error(err)
	}
	return w.loads.Load() - before
}

func (t *StrictTags) leads(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.all[name]
	return g != nil && g.hears != nil
}

func TestStrictIDsRiseWhoeverLoadsThem(t *testing.T) {
	workers := fleet(t, 3)
	for _, w := range workers {
		w.slow.Store(int64(time.Millisecond)) // they overtake one another
		w.lead("a")                           // too many at first
	}
	var order ledger.Order
	var group sync.WaitGroup
	const callers, requests = 12, 100
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
	if r := order.Report(); r.Inversions > 0 || r.Answers != callers*requests {
		t.Errorf("%+v", r)
	}
}

// The memory of these tests overtakes nobody, so it is said.
func TestWhoIsOvertakenAsksAndLeadsWhereNobodyListens(t *testing.T) {
	workers := fleet(t, 2)
	loser, other := workers[0], workers[1]
	outrun := segment.New(segment.Config{Store: loser.Over(outrun{loser.store}), Deadline: deadline})
	defer outrun.Close()
	outrun.See(strictTag)
	if _, err := segmenttest.Take(t.Context(), outrun, "a", 1); err != nil || !loser.leads("a") {
		t.Errorf("%v; nobody listens, and it leads: %t", err, loser.leads("a"))
	}
	other.lead("a") // two
	if err := other.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	_, err := segmenttest.Take(t.Context(), outrun, "a", 1)
	if err != nil || loser.leads("a") || other.loads.Load() != 1 {
		t.Errorf("%v; the loader that was overtaken still is one: %t; %d loads of the other one", err, loser.leads("a"),
			other.loads.Load())
	}
	if s, _ := outrun.StatsOf("a"); s.Errors > 0 {
		t.Errorf("a load failed: %v", s.LastError)
	}
	if loser.take(t) != 0 {
		t.Error("the next load is not passed on at once")
	}
	other.stop()
	if err := other.conn.Flush(); err != nil || loser.take(t) != 1 || !loser.leads("a") {
		t.Error("the loader has stopped, and this worker is not the next one")
	}
}

// An outrun store is one in which others win each compare-and-set but those of a load that is not passed on.
type outrun struct{ segment.Store }

func (o outrun) LoadStrict(ctx context.Context, tag string, join func() int64, floor int64) (segment.Loaded, error) {
	for range mostTries + 1 {
		join()
	}
	if ctx.Err() != nil {
		return segment.Loaded{}, ctx.Err()
	}
	return o.Store.LoadStrict(ctx, tag, join, floor)
}

// An air is a connection on which nobody answers in time.
type air struct {
	Conn
	cut bool
}

func (a *air) IsConnected() bool { return !a.cut }

func (a *air) RequestWithContext(ctx context.Context, _ string, _ []byte) (*nats.Msg, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// It may have waited for a store that was away for all: until it is asked again, they fight over the marks. And each
// worker that hangs must not be waited for longer than the one before.
func TestALoaderThatDoesNotAnswerIsAskedAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sky := new(air)
		r := NewStrictTags(StrictConfig{
			Namespace: subjects.DefaultNamespace, Conn: sky, Marks: func() string { return marks },
			Loads: func() bool { return true },
		})
		r.slowest.Note(5 * time.Millisecond)
		store := new(segmenttest.Memory)
		if _, err := store.Create(t.Context(), strictTag, false); err != nil {
			t.Fatal(err)
		}
		r.overtaken("a")
		load := func() time.Duration {
			t.Helper()
			began := time.Now()
			_, err := r.Over(store).LoadStrict(t.Context(), "a", func() int64 { return 1 }, 0)
			if err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		for _, paused := range []time.Duration{leastPause, 2 * leastPause, 4 * leastPause, mostPause, mostPause} {
			if took := load(); took != leastAnswer {
				t.Errorf("a load took %v, want %v", took, leastAnswer)
			}
			if time.Sleep(paused - 1); r.asks("a") || load() != 0 {
				t.Errorf("it is asked again before %v", paused)
			}
			if time.Sleep(time.Nanosecond); !r.asks("a") {
				t.Errorf("it is not asked again after %v", paused)
			}
		}
		if r.answered("a", true); r.all["a"].pause != 0 {
			t.Error("an answer does not end the pauses")
		}
		if sky.cut = true; r.asks("a") || load() != 0 {
			t.Error("it asks without a connection")
		}
		r.forget(time.Now().Add(-forgetAfter))
		if r.all["a"] == nil {
			t.Error("a tag in use is forgotten")
		}
		time.Sleep(forgetAfter)
		if r.forget(time.Now().Add(-forgetAfter)); len(r.all) > 0 {
			t.Error("a tag that nobody uses is remembered")
		}
	})
}

// A load of the worker's own needs time, too.
func TestALoaderGetsHalfOfTheTimeAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var r StrictTags
		check := func(ctx context.Context, what string, want time.Duration) {
			t.Helper()
			if got := r.patience(ctx); got != want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		check(t.Context(), "before the first load, without end", leastAnswer)
		check(ctx, "before the first load", 500*time.Millisecond)
		r.slowest.Note(100 * time.Millisecond)
		check(ctx, "where a load takes 0.1 s", 300*time.Millisecond)
		r.slowest.Note(time.Minute)
		check(ctx, "where a load takes a minute", 500*time.Millisecond)
		for range 200 {
			r.slowest.Note(10 * time.Millisecond)
		}
		check(ctx, "once loads are fast again", leastAnswer)
	})
}

func TestWhatWasPassedOnIsNotPassedOnAgain(t *testing.T) {
	w, other := pair(t)
	w.slow.Store(int64(leastAnswer))
	// By one who thinks that w loads the tag.
	inbox := nats.NewInbox()
	answers, err := w.conn.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	w.StrictTags.take(&nats.Msg{Subject: wire.Loader(w.cfg.Namespace, "a"), Reply: inbox, Data: []byte("7 M1 a")})
	if w.asks("a") || w.overtaken("a") {
		t.Error("a load is passed on though a message waits for it")
	}
	m, err := answers.NextMsg(deadline)
	if err != nil || w.loads.Load() != 1 || other.loads.Load() != 0 {
		t.Fatalf("%v, after %d loads of its own", err, w.loads.Load())
	}
	if string(m.Data) != `{"marks":"M1","start":"1","end":"8","step":100}` {
		t.Errorf("%s", m.Data)
	}
	if w.take(t) != 0 {
		t.Error("once it is answered, nothing is passed on")
	}
}

// Otherwise their senders would wait in vain, for up to half of the time that their requests have.
func TestALoaderThatStopsAnswersWhatItHasReceived(t *testing.T) {
	asker, loader := pair(t)
	const sent = 3
	answers, err := asker.conn.SubscribeSync(asker.conn.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	subject := wire.Loader(subjects.DefaultNamespace, "a")
	loader.mu.Lock()
	for range sent {
		if err := asker.conn.PublishRequest(subject, answers.Subject, []byte("1 M1 a")); err != nil {
			t.Error(err)
		}
	}
	err = errors.Join(asker.conn.Flush(), loader.conn.Flush()) // the messages wait for the lock
	loader.all["a"].resign()
	loader.mu.Unlock()
	for i := range sent {
		if err == nil {
			_, err = answers.NextMsg(deadline)
		}
		if err != nil {
			t.Fatalf("answer %d of %d: %v", i, sent, err)
		}
	}
	if loader.leads("a") {
		t.Error("it is the loader still")
	}
}

func TestMalformedMessagesGetNoID(t *testing.T) {
	w := fleet(t, 1)[0]
	w.lead("a")
	tooMany := strconv.Itoa(segment.MaxStep) + "0 M1 a"
	// A tag that is not strict has IDs in memory, which may be older than the message.
	if _, err := w.store.Create(t.Context(), segment.Tag{Name: "b", Step: 100, MaxID: 1}, false); err != nil {
		t.Fatal(err)
	}
	const nothing = `{"marks":"","start":"0","end":"0","step":0}`
	for _, body := range []string{
		"", "7", "7 a", "7 M2 a", "x M1 a", "0 M1 a", "-1 M1 a", "7 M1 b", "7 M1 a b", "7  a", tooMany,
	} {
		m, err := w.conn.Request(wire.Loader(w.cfg.Namespace, "a"), []byte(body), 50*time.Millisecond)
		if err == nil && string(m.Data) != nothing || err != nil && !errors.Is(err, nats.ErrTimeout) {
			t.Errorf("%q: %v, %v", body, m, err)
		}
	}
	if w.loads.Load() != 0 {
		t.Errorf("%d loads", w.loads.Load())
	}
}

func TestNothingIsPassedBetweenDifferentMarksNorToOneWhoCannotLoad(t *testing.T) {
	foreign, nothing := "M2", ""
	for what, change := range map[string]func(asker, loader *worker){
		"it loads from other marks":    func(_, loader *worker) { loader.marks.Store(&foreign) },
		"it must issue nothing":        func(_, loader *worker) { loader.marks.Store(&nothing) },
		"it cannot load":               func(_, loader *worker) { loader.cannot.Store(true) },
		"the asker must issue nothing": func(asker, _ *worker) { asker.marks.Store(&nothing) },
	} {
		asker, loader := pair(t)
		change(asker, loader)
		if own := asker.take(t); own != 1 || loader.loads.Load() > 0 {
			t.Errorf("%s: %d loads of its own, and %d of the loader", what, own, loader.loads.Load())
		}
		if loader.leads("a") == loader.cannot.Load() {
			t.Errorf("%s: it is the loader after that: %t", what, loader.leads("a"))
		}
	}
}

// Whoever answers, a range of other marks is not taken, and none below the floor.
func TestAnAnswerOfOtherMarksOrBelowTheFloorIsNotTaken(t *testing.T) {
	w, then := fleet(t, 1)[0], marks
	var of string
	forged, err := w.conn.Subscribe(wire.Loader(w.cfg.Namespace, "a"), func(m *nats.Msg) {
		w.marks.Store(new(then))
		_ = m.Respond([]byte(`{"marks":"` + of + `","start":"900","end":"901","step":1}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = forged.Unsubscribe() }()
	pass := func(floor int64) (segment.Loaded, bool) {
		w.overtaken("a")
		w.mu.Lock()
		w.all["a"].retryAfter = time.Time{}
		w.mu.Unlock()
		return w.pass(t.Context(), "a", func() int64 { return 1 }, floor)
	}
	for _, of = range []string{"M1", "M2"} {
		if l, ok := pass(0); ok != (of == "M1") {
			t.Errorf("an answer of %s: %+v, %t", of, l, ok)
		}
	}
	for floor, passed := range map[int64]bool{900: true, 901: false} {
		of = "M1"
		if l, ok := pass(floor); ok != passed {
			t.Errorf("an answer of 900 at the floor %d: %+v", floor, l)
		}
	}
	then = "M2"
	if l, ok := pass(0); ok {
		t.Errorf("marks that changed before the answer: %+v", l)
	}
}

// A request that comes once the message was sent may have been sent after the answer to one that the loader served.
func TestRequestsJoinALoadThatIsPassedOnOnlyBeforeItIsSent(t *testing.T) {
	w, joined := fleet(t, 1)[0], 0
	sent, err := w.conn.Subscribe(wire.Loader(w.cfg.Namespace, "a"), func(m *nats.Msg) {
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
	w.overtaken("a")
	l, err := w.Over(w.store).LoadStrict(t.Context(), "a", func() int64 { joined++; return 3 }, 0)
	if err != nil || !l.Passed || l.Range != (segment.Range{Start: 900, End: 903}) || joined != 1 {
		t.Errorf("%+v, %v, after %d joins; want 900 to 902 after 1", l, err, joined)
	}
}

func TestALoadWaitsForTheNextMessagesOfThoseItServedLast(t *testing.T) {
	for name, c := range map[string]struct {
		served int
		came   []time.Duration // after the wait began
		took   time.Duration   // by the last load
		want   time.Duration
	}{
		"nobody was served":                 {0, nil, 4 * time.Millisecond, 0},
		"both come":                         {2, []time.Duration{100, 300}, 4 * time.Millisecond, 300},
		"one does not come":                 {2, []time.Duration{100}, 4 * time.Millisecond, time.Millisecond},
		"one does not come, loads are slow": {2, []time.Duration{100}, time.Hour, mostWait},
		"one who was not served comes too":  {1, []time.Duration{100, 200}, 4 * time.Millisecond, 100},
		"no load was measured":              {1, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// A message for a tag that is not strict is not served, and so not awaited again.
				alloc := segment.New(segment.Config{Store: new(segmenttest.Memory), Deadline: deadline})
				defer alloc.Close()
				r := NewStrictTags(StrictConfig{
					Namespace: subjects.DefaultNamespace, Conn: new(deafAir), Marks: func() string { return marks },
					Loads: func() bool { return true }, Segments: func() *segment.Allocator { return alloc },
				})
				r.of("a", true).awaited, r.of("a", false).took = c.served, c.took
				r.of("a", false).came <- struct{}{} // of an earlier load
				for _, d := range c.came {
					time.AfterFunc(d, func() { r.take(&nats.Msg{Reply: "b", Data: []byte("7 M1 a")}) })
				}
				if got := r.await(t.Context(), "a"); got != c.want {
					t.Errorf("it waited for %v, want %v", got, c.want)
				}
			})
		})
	}
}

// A deafAir takes answers.
type deafAir struct{ air }

func (*deafAir) Publish(string, []byte) error { return nil }
