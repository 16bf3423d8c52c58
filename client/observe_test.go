package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

type caller struct{} // key of a value in a context

// seen is what an observer saw of one call.
type seen struct {
	call  client.Call
	by    any
	ended int
	err   error
}

// watch returns an observer, and a function that returns what it saw.
func watch() (client.Option, func() []seen) {
	var mu sync.Mutex
	var all []*seen
	observe := client.ObserveCalls(func(ctx context.Context, c client.Call) func(error) {
		s := &seen{call: c, by: ctx.Value(caller{})}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, s)
		return func(err error) {
			mu.Lock()
			defer mu.Unlock()
			s.ended, s.err = s.ended+1, err
		}
	})
	return observe, func() (copied []seen) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range all {
			copied = append(copied, *s)
		}
		return copied
	}
}

func TestAnObserverSeesBothEndsOfEachCallWithTheContextOfItsCaller(t *testing.T) {
	nc := connect(t)
	d := openDesk(t, nc)
	observe, all := watch()
	h := client.New(nc, client.Timeout(long), observe).Segment("order")
	first, gathered := gather(t.Context(), t, d, h, 1)
	const callers = 10
	var wg sync.WaitGroup
	for i := range callers {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), caller{}, i))
		if i == 0 {
			time.AfterFunc(10*time.Millisecond, cancel)
		}
		wg.Go(func() {
			defer cancel()
			if _, err := h.Next(ctx); (err == nil) != (i > 0) {
				t.Error(err)
			}
		})
	}
	until(t, "all calls wait, and one has given up", func() bool {
		return h.Gathered() == 1+callers && len(all()) == 4+1+callers && oneEnded(all())
	})
	d.issueHeld()
	wg.Wait()
	collect(t, first, 4)
	collect(t, gathered, 1)
	if n := h.Stats().Requests; n != 5 {
		t.Errorf("%d requests, want the calls to share the fifth", n)
	}
	by := map[any]int{}
	for _, s := range all() {
		by[s.by]++
		want := client.Call{Subject: "id.segment.order", IDs: 1}
		if s.call.Subject != want.Subject || s.call.IDs != 1 || s.ended != 1 {
			t.Errorf("%+v, want %+v, which ended once", s, want)
		}
		if errors.Is(s.err, context.Canceled) != (s.by == 0) || s.err != nil && s.by != 0 {
			t.Errorf("the call of %v ended with %v", s.by, s.err)
		}
	}
	if by[nil] != 5 || by[callers-1] != 1 || len(by) != 1+callers {
		t.Errorf("calls by their callers: %v", by)
	}
}

func oneEnded(all []seen) bool {
	ended := 0
	for _, s := range all {
		ended += s.ended
	}
	return ended == 1
}

func TestACallThatFailsIsObservedWithItsError(t *testing.T) {
	nc := connect(t)
	respond(t, nc, "id.>", func(m *nats.Msg) {
		switch {
		case strings.HasPrefix(m.Subject, "id.tag"):
			refuse(t, m, "404", "because")
		default:
			answer(t, m, "1-3")
		}
	})
	observe, all := watch()
	c := client.New(nc, observe)
	_, err := c.Segment("order").NextN(t.Context(), 3)
	_, refused := c.CreateTag(t.Context(), subjects.TagCreate{Tag: "order"})
	_, malformed := c.Segment(" ").NextN(t.Context(), 3)
	got := all()
	if err != nil || len(got) != 3 || got[0].call.IDs != 3 || got[1].call.IDs != 0 || got[0].err != nil ||
		got[1].err != refused || got[2].err != malformed || !errors.Is(refused, client.ErrUnknownTag) ||
		!errors.Is(malformed, client.ErrBadRequest) {
		t.Errorf("%v, %v, %v: %+v", err, refused, malformed, got)
	}
}

func TestCallsThatGetAHeldIDAreNotObserved(t *testing.T) {
	nc := connect(t)
	openDesk(t, nc)
	observe, all := watch()
	c := client.New(nc, client.Timeout(long), observe, client.ObserveCalls(nil), observe)
	h := c.Segment("order", client.Prefetch(10_000, time.Minute))
	draw(t, h.Next, 1000)
	if got := all(); len(got) != 1 || got[0].ended != 1 {
		t.Errorf("%+v, want the call that waited", got)
	}
}
