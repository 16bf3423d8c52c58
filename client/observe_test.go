package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

type caller struct{} // key of a value in a context

// seen is what an observer saw of one call.
type seen struct {
	client.Call
	by any
}

// watch returns a client whose calls are observed, and a function that returns what was seen.
func watch(nc *nats.Conn) (*client.Client, func() []seen) {
	var mu sync.Mutex
	var all []seen
	cfg := client.Config{Timeout: long, ObserveCall: func(ctx context.Context, c client.Call) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, seen{c, ctx.Value(caller{})})
	}}
	return client.Must(client.New(nc, cfg)), func() []seen {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func TestAnObserverSeesEachCallWithTheContextOfItsCaller(t *testing.T) {
	nc := connect(t)
	d := openDesk(t, nc)
	c, all := watch(nc)
	h := order(c, client.SegmentConfig{})
	first, gathered := gather(t.Context(), t, d, h, 1)
	const callers = 10
	var wg sync.WaitGroup
	var giveUp context.CancelFunc
	for i := range callers {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), caller{}, i))
		if i == 0 {
			giveUp = cancel
		}
		wg.Go(func() {
			defer cancel()
			if _, err := h.Next(ctx); (err == nil) != (i > 0) {
				t.Error(err)
			}
		})
	}
	wait.Until(t, "all calls wait", func() bool { return h.Gathered() == 1+callers })
	giveUp()
	wait.Until(t, "one has given up", func() bool { return len(all()) == 1 })
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
		want := "ok"
		if s.by == 0 {
			want = "canceled"
		}
		if s.Subject != "id.segment.order" || s.IDs != 1 || s.Outcome != want || (s.Err == nil) != (want == "ok") ||
			s.Took <= 0 || time.Since(s.Began) < s.Took {
			t.Errorf("%+v, want one ID of id.segment.order, %s", s, want)
		}
	}
	if by[nil] != 5 || by[callers-1] != 1 || len(by) != 1+callers {
		t.Errorf("calls by their callers: %v", by)
	}
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
	c, all := watch(nc)
	h := order(c, client.SegmentConfig{})
	_, err := h.NextN(t.Context(), 3)
	_, refused := c.CreateTag(t.Context(), subjects.TagCreate{Tag: "order"})
	_, malformed := h.NextN(t.Context(), 0)
	got := all()
	if err != nil || len(got) != 3 || got[0].IDs != 3 || got[1].IDs != 0 || got[0].Outcome != "ok" ||
		got[1].Err != refused || got[1].Outcome != "unknown_tag" || got[2].Err != malformed ||
		got[2].Outcome != "bad_request" {
		t.Errorf("%v, %v, %v: %+v", err, refused, malformed, got)
	}
}

func TestCallsThatWaitForNothingAreNotObserved(t *testing.T) {
	nc := connect(t)
	openDesk(t, nc)
	c, all := watch(nc)
	h := order(c, client.SegmentConfig{Prefetch: 10_000})
	draw(t, h.Next, 1000)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Next(ended)
	_, errN := h.NextN(ended, 3)
	_, errTag := c.CreateTag(ended, subjects.TagCreate{Tag: "order"})
	if got := all(); len(got) != 1 || !errors.Is(err, context.Canceled) || !errors.Is(errN, context.Canceled) ||
		!errors.Is(errTag, context.Canceled) {
		t.Errorf("%+v, want the call that waited; %v, %v, %v", got, err, errN, errTag)
	}
}
