package segment_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

func TestEachLoadIsReportedBeforeAnIDOfItIsIssued(t *testing.T) {
	var mu sync.Mutex
	var granted []segment.Range
	cfg := segment.Config{Granted: func(tag string, l segment.Loaded) {
		mu.Lock()
		defer mu.Unlock()
		if tag != "a" {
			t.Errorf("tag %q", tag)
		}
		granted = append(granted, l.Range)
	}}
	inBubble(t, cfg, func(t *testing.T, a *allocator, _ *faulty) {
		for range 500 {
			id := take(t, a, "a", 1)[0].Start
			mu.Lock()
			within := false
			for _, g := range granted {
				within = within || g.Start <= id && id < g.End
			}
			mu.Unlock()
			if !within {
				t.Fatalf("ID %d is in none of %v", id, granted)
			}
			synctest.Wait()
		}
		if len(granted) < 5 {
			t.Errorf("only %d loads", len(granted))
		}
	})
}

// helped is a store that fails, though another worker loads strict tags from its own.
type helped struct{ segment.Store }

func (helped) Load(_ context.Context, tag string, _, _ int64) (segment.Loaded, error) {
	if tag == "strict" {
		return segment.Loaded{Rules: segment.Rules{Strict: true}}, segment.ErrStrict
	}
	return segment.Loaded{}, segmenttest.ErrInjected
}

func (helped) LoadStrict(_ context.Context, _ string, join func() int64, floor int64) (segment.Loaded, error) {
	start := max(1, floor)
	return segment.Loaded{Range: segment.Range{Start: start, End: start + join()}, Step: 1, Passed: true}, nil
}

func TestWhatAnotherWorkerLoadsEndsNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := segment.New(segment.Config{Store: helped{new(segmenttest.Memory)}, Deadline: time.Second})
		defer a.Close()
		ask := func(tag string) {
			if err := a.Park(tag, 1, func([]segment.Range, error) {}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		ask("loose")
		ask("strict")
		if err := a.Trouble(); !errors.Is(err, segmenttest.ErrInjected) {
			t.Errorf("its trouble is %v, want that its own store fails", err)
		}
	})
}
