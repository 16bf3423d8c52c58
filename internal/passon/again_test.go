package passon

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
	"github.com/natsid/natsid/subjects"
)

// An air carries what workers say to all of them.
type air struct {
	Conn
	hear []nats.MsgHandler
	gone bool // whoever is asked; otherwise nobody answers in time
}

func (a *air) Subscribe(subject string, f nats.MsgHandler) (*nats.Subscription, error) {
	if subject == subjects.DefaultNamespace.Loaders() {
		a.hear = append(a.hear, f)
	}
	return nil, nil
}

func (a *air) Publish(_ string, data []byte) error {
	for _, f := range a.hear {
		f(&nats.Msg{Data: data})
	}
	return nil
}

func (a *air) RequestWithContext(ctx context.Context, _ string, _ []byte) (*nats.Msg, error) {
	if a.gone {
		return nil, nats.ErrNoResponders
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
		alloc.SetStrict(map[string]bool{"a": true})
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
				Marks:    func() string { return *theirs[i].Load() },
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
