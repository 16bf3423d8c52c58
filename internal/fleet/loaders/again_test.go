package loaders

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
	"github.com/natsid/natsid/subjects"
)

// An air carries the announcements of workers to all of them.
type air struct {
	Conn
	gone bool // whoever is asked; otherwise nobody answers in time

	mu   sync.Mutex
	hear []nats.MsgHandler
	said int  // messages to all
	deaf bool // not connected
}

func (a *air) Subscribe(subject string, f nats.MsgHandler) (*nats.Subscription, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if subject == wire.Loaders(subjects.DefaultNamespace) {
		a.hear = append(a.hear, f)
	}
	return nil, nil
}

func (a *air) Publish(_ string, data []byte) error {
	a.mu.Lock()
	a.said++
	hear := slices.Clone(a.hear)
	a.mu.Unlock()
	for _, f := range hear {
		f(&nats.Msg{Data: data})
	}
	return nil
}

func (a *air) IsConnected() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.deaf
}

func (a *air) RequestWithContext(ctx context.Context, _ string, _ []byte) (*nats.Msg, error) {
	if a.gone {
		return nil, nats.ErrNoResponders
	}
	if !a.IsConnected() {
		return nil, nats.ErrDisconnected
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// It may have waited for a store that was away for all. Until it is asked again, they fight over the marks.
func TestAWorkerThatDidNotAnswerIsAskedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sky := new(air)
		r := New(Config{
			Namespace: subjects.DefaultNamespace, Name: "0", Conn: sky, Marks: func() string { return marks },
			Loads: func() bool { return true },
		})
		hear := func() { r.hear(&nats.Msg{Data: []byte("other M1")}) }
		name := ""
		for i := 0; name == ""; i++ { // that the other one loads
			hear()
			if tag := strconv.Itoa(i); r.loader(tag) != "" {
				name = tag
			}
		}
		pass := func(paused time.Duration) {
			t.Helper()
			if _, ok := r.pass(t.Context(), "other", name, func() int64 { return 1 }); ok {
				t.Error("there was no answer")
			}
			time.Sleep(paused - 1)
			if r.loader(name) != "" {
				t.Errorf("it is asked again before %v", paused)
			}
			time.Sleep(time.Nanosecond)
			if r.loader(name) != "other" {
				t.Errorf("it is not asked again after %v", paused)
			}
		}
		pass(leastPause)
		pass(2 * leastPause)
		pass(4 * leastPause)
		hear()
		pass(leastPause)
		sky.gone = true
		if _, ok := r.pass(t.Context(), "other", name, func() int64 { return 1 }); ok || len(r.heard) != 0 {
			t.Error("it is gone, and still believed")
		}
	})
}

// Otherwise they would fight over the marks until they have heard of one another: for up to 1.5 s.
func TestWorkersPassOnAsSoonAsTheyCanLoadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alloc := segment.New(segment.Config{Store: new(segmenttest.Memory), Deadline: deadline})
		defer alloc.Close()
		alloc.See(strictTag)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		sky, none := new(air), ""
		var rings [3]*Ring
		var theirs [3]atomic.Pointer[string]
		for i := range rings {
			theirs[i].Store(&none)
			rings[i] = New(Config{
				Namespace: subjects.DefaultNamespace, Name: strconv.Itoa(i), Conn: sky,
				Segments: func() *segment.Allocator { return alloc },
				Marks:    func() string { return *theirs[i].Load() }, Loads: func() bool { return true },
			})
			go func() { _ = rings[i].Run(ctx) }()
			synctest.Wait() // the next one subscribes after it
		}
		for range 20 {
			for i := range rings {
				time.Sleep(jitter.UpTo(lookEvery))
				theirs[i].Store(&marks)
			}
			time.Sleep(lookEvery + 1)
			loaders := map[string]bool{}
			for i, r := range rings {
				loader := r.loader("a")
				if loader == "" {
					loader = strconv.Itoa(i)
				}
				loaders[loader] = true
			}
			if len(loaders) != 1 {
				t.Fatalf("%d workers load", len(loaders))
			}
			for i := range theirs {
				theirs[i].Store(&none)
			}
			time.Sleep(time.Minute)
			rings[0].mu.Lock()
			if n := len(rings[0].heard); n > 0 {
				t.Fatalf("%d are still believed", n)
			}
			rings[0].mu.Unlock()
		}
	})
}

// A sky is an air in which rings start that know of a strict tag and can load.
type sky struct {
	air
	ctx   context.Context
	alloc *segment.Allocator
}

// newSky must be called in a bubble, at whose end its rings stop.
func newSky(t *testing.T) *sky {
	s := &sky{ctx: t.Context(), alloc: segment.New(segment.Config{Store: new(segmenttest.Memory), Deadline: deadline})}
	s.alloc.See(strictTag)
	t.Cleanup(s.alloc.Close)
	return s
}

func (s *sky) start(name string) *Ring {
	r := New(Config{
		Namespace: subjects.DefaultNamespace, Name: name, Conn: s,
		Segments: func() *segment.Allocator { return s.alloc }, Marks: func() string { return marks },
		Loads: func() bool { return true },
	})
	go func() { _ = r.Run(s.ctx) }()
	synctest.Wait()
	return r
}

// Until then a worker that has come, or come back, would load beside the others: for up to 1.5 s.
func TestWorkersOfASmallFleetAnswerANewOneSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sky := newSky(t)
		said := func() int {
			sky.mu.Lock()
			defer sky.mu.Unlock()
			return sky.said
		}
		var rings []*Ring
		for others := range smallFleet + 2 {
			before := said()
			r := sky.start(strconv.Itoa(others))
			rings = append(rings, r)
			if others <= smallFleet {
				time.Sleep(lookEvery) // one of them may have said a word just before
				synctest.Wait()
			}
			answers := said() - before - 1
			if others <= smallFleet && (r.knows() != others || answers < others) {
				t.Errorf("a new worker knows %d of %d others soon, after %d answers", r.knows(), others, answers)
			}
			if others > smallFleet && answers > 0 {
				t.Errorf("%d of %d answered a new one", answers, others)
			}
			time.Sleep(time.Minute)
		}
		for i, r := range rings {
			if r.knows() != len(rings)-1 {
				t.Errorf("worker %d knows %d others", i, r.knows())
			}
		}
	})
}

// Otherwise each of a large fleet that starts would answer each of the first it hears: all hear all of that.
func TestWorkersThatStartAtOnceAnswerOneAnotherOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sky := newSky(t)
		const workers = 200
		for i := range workers {
			sky.start(strconv.Itoa(i))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(lookEvery)
		sky.mu.Lock()
		defer sky.mu.Unlock()
		if sky.said > 2*workers {
			t.Errorf("%d workers said %d words when they started, want two each at most", workers, sky.said)
		}
	})
}

func (r *Ring) knows() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.heard)
}

// A worker that was cut off for a while passes on at once: it may have no time to hear of the others again.
func TestAWorkerForgetsNobodyWhileItIsNotConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alloc := segment.New(segment.Config{Store: new(segmenttest.Memory), Deadline: deadline})
		defer alloc.Close()
		sky := new(air)
		r := New(Config{
			Namespace: subjects.DefaultNamespace, Name: "0", Conn: sky, Marks: func() string { return marks },
			Segments: func() *segment.Allocator { return alloc }, Loads: func() bool { return false },
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = r.Run(ctx) }()
		r.hear(&nats.Msg{Data: []byte("other M1")})
		connect := func(connected bool) {
			sky.mu.Lock()
			defer sky.mu.Unlock()
			sky.deaf = !connected
		}
		connect(false)
		for range 10 { // loads that the cut ends
			if _, ok := r.pass(t.Context(), "other", "a", func() int64 { return 1 }); ok {
				t.Error("there was an answer")
			}
		}
		time.Sleep(time.Hour)
		if r.loader("a") != "other" {
			t.Error("it has forgotten who was there")
		}
		connect(true)
		time.Sleep((believed - 1) * sayEvery)
		if r.loader("a") != "other" {
			t.Error("it has forgotten who was there before it could be heard")
		}
		time.Sleep(2 * sayEvery)
		if r.loader("a") != "" {
			t.Error("who is silent is believed for ever")
		}
	})
}

func TestAWorkerThatCannotLoadPassesOnAndLoadsForNobody(t *testing.T) {
	workers := fleet(t, 2)
	asker, other := workers[0], workers[1]
	if asker.loader("a") != "" {
		asker, other = other, asker
	}
	asker.cannot.Store(true)
	other.hear(&nats.Msg{Data: []byte(asker.name + " " + marks)}) // of a moment ago
	if _, err := segmenttest.Take(t.Context(), asker.alloc, "a", 1); err != nil || asker.loads.Load() > 0 {
		t.Errorf("%v, after %d loads of a worker that cannot load", err, asker.loads.Load())
	}
	if _, err := segmenttest.Take(t.Context(), other.alloc, "a", 1); err != nil || asker.loads.Load() > 0 {
		t.Errorf("%v, after %d loads of a worker that cannot load", err, asker.loads.Load())
	}
}

// A load that began before the connection is back would wait for the marks to be checked, beside those that are passed
// on. Where other marks than those of NATS are loaded from, NATS does not matter.
func TestNoLoadBeginsWhileMarksCannotBeReached(t *testing.T) {
	store := new(segmenttest.Memory)
	if _, err := store.Create(t.Context(), strictTag, false); err != nil {
		t.Fatal(err)
	}
	sky, of := &air{deaf: true}, marks
	r := New(Config{
		Namespace: subjects.DefaultNamespace, Conn: sky, Marks: func() string { return of },
		Segments: func() *segment.Allocator { return nil }, Loads: func() bool { return true },
	})
	load := func() error {
		_, err := r.Store(store).LoadStrict(t.Context(), "a", func() int64 { return 1 }, 0)
		return err
	}
	if err := load(); !errors.Is(err, errCutOff) {
		t.Error(err)
	}
	if of = ""; load() != nil {
		t.Error("a load that needs no NATS failed")
	}
}

// Otherwise each worker that hangs would be waited for longer than the one before.
func TestAnAnswerThatDoesNotComeDoesNotMakeLoadsLookSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(segmenttest.Memory)
		if _, err := store.Create(t.Context(), strictTag, false); err != nil {
			t.Fatal(err)
		}
		r := New(Config{
			Namespace: subjects.DefaultNamespace, Conn: new(air), Marks: func() string { return marks },
			Segments: func() *segment.Allocator { return nil }, Loads: func() bool { return false },
		})
		r.slowest.Note(5 * time.Millisecond)
		for range 5 {
			r.hear(&nats.Msg{Data: []byte("other M1")})
			began := time.Now()
			_, err := r.Store(store).LoadStrict(t.Context(), "a", func() int64 { return 1 }, 0)
			if took := time.Since(began); err != nil || took != patience {
				t.Errorf("%v after %v, want %v", err, took, patience)
			}
		}
	})
}
