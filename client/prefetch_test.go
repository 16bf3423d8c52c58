package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

// draw returns IDs of a handle, none of which may fail.
func draw(t *testing.T, next func(context.Context) (subjects.ID, error), calls int) []subjects.ID {
	t.Helper()
	var ids []subjects.ID
	for range calls {
		id, err := next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// On Linux neither the monotonic clock nor a timer notices that the machine was suspended.
func TestWhatIsHeldGrowsTooOldWhileTheMachineIsSuspended(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	openDesk(t, nc)
	c := patient(nc)
	suspend := c.Suspend()
	h := order(c, client.SegmentConfig{Prefetch: 1000, MaxAge: time.Hour})
	idle := order(c, client.SegmentConfig{Prefetch: 999, MaxAge: time.Hour})
	first := draw(t, h.Next, 1)[0]
	draw(t, idle.Next, 1)
	suspend(59 * time.Minute)
	if id := draw(t, h.Next, 100)[99]; id != first+100 {
		t.Errorf("ID %d after 59 min, want %d, which is held", id, first+100)
	}
	suspend(time.Minute)
	const issued = 1000 + 999 // when both held IDs
	if id := draw(t, h.Next, 1)[0]; id <= issued {
		t.Errorf("ID %d was held for an hour", id)
	}
	if n := idle.Stats().Held; n != 0 {
		t.Errorf("%d IDs count as held, and are too old", n)
	}
}

func TestNoIDIsGivenTwice(t *testing.T) {
	nc := connect(t)
	openDesk(t, nc)
	c := patient(nc)
	for name, tc := range map[string]struct {
		cfg   client.SegmentConfig
		calls int
	}{
		"ranges that are soon too old": {client.SegmentConfig{Prefetch: 50, MaxAge: 20 * time.Millisecond}, 2000},
		"calls that meet in one range": {client.SegmentConfig{Prefetch: 100_000, MaxAge: time.Minute}, 100_000},
	} {
		h := client.Must(c.Segment("order", tc.cfg))
		var mu sync.Mutex
		var all [][]subjects.ID
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				ids := make([]subjects.ID, 0, tc.calls)
				for range tc.calls {
					id, err := h.Next(t.Context())
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					ids = append(ids, id)
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, ids)
			})
		}
		wg.Wait()
		once(t, all...)
	}
}

func TestAHeldIDAllocatesNothing(t *testing.T) {
	nc := connect(t)
	openDesk(t, nc)
	h := order(patient(nc), client.SegmentConfig{Prefetch: 100_000, MaxAge: time.Hour})
	ctx := t.Context()
	draw(t, h.Next, 1)
	if n := testing.AllocsPerRun(10_000, func() { _, _ = h.Next(ctx) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestACallThatNoRangeReachesInTimeEnds(t *testing.T) {
	nc := connect(t)
	d := openDesk(t, nc)
	d.say(func(_, _ int, m *nats.Msg) bool { // what comes is too old already
		time.Sleep(10 * time.Millisecond)
		d.issue(m)
		return true
	})
	hurried := client.Must(client.New(nc, client.Config{Timeout: 300 * time.Millisecond}))
	h := order(hurried, client.SegmentConfig{Prefetch: 10, MaxAge: 5 * time.Millisecond})
	ended := make(chan error, 1)
	go func() { _, err := h.Next(context.Background()); ended <- err }()
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(long):
		t.Fatal("a call without a deadline still waits")
	}
}

func TestARefusalOfARangeIsWhatItsCallsReturn(t *testing.T) {
	nc := connect(t)
	d := openDesk(t, nc)
	var code string
	d.say(func(_, _ int, m *nats.Msg) bool {
		refuse(t, m, code, "because")
		return true
	})
	for c, want := range map[string]error{"404": client.ErrUnknownTag, "400": client.ErrBadRequest} {
		d.mu.Lock()
		code = c
		d.mu.Unlock()
		h := order(patient(nc), client.SegmentConfig{Prefetch: 10, MaxAge: time.Minute})
		if _, err := h.Next(t.Context()); !errors.Is(err, want) || h.Stats().Requests != 1 {
			t.Errorf("%s: %v after %d requests", c, err, h.Stats().Requests)
		}
	}
}
