package app

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/internal/fleet/loaders"
	"github.com/natsid/natsid/internal/fleet/standby"
	"github.com/natsid/natsid/segment"
)

var errCut = errors.New("cut off")

// unreachable is a store that cannot be reached.
type unreachable struct{ segment.Store }

func (unreachable) Load(context.Context, string, int64, int64) (segment.Loaded, error) {
	return segment.Loaded{}, errCut
}

// another is a worker that loads strict tags for this one.
type another struct{}

func (another) LoadStrict(
	_ context.Context, _ string, join func() int64, floor int64, _ loaders.LoadFunc,
) (segment.Loaded, error) {
	start := max(1, floor)
	return segment.Loaded{Range: segment.Range{Start: start, End: start + join()}, Step: 1, Passed: true}, nil
}

type allKnown struct{}

func (allKnown) Known(context.Context) error   { return nil }
func (allKnown) CatchUp(context.Context) error { return nil }

// What another worker loads for this one, all the time, shows nothing of its own store.
func TestAWorkerThatIsCutOffLeavesThoughAnotherLoadsStrictTagsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		now := standby.Serving
		watch := standby.New(standby.Config{
			Process: "cut", Name: func() string { return "cut" }, Kind: "kv",
			Registry: func() string { return "r" }, Probe: func(context.Context) error { return errCut },
			Serves: func() bool { return true }, Change: func(s standby.State, _ error) { now = s },
			Ask: func(_ context.Context, question []byte) ([]byte, error) { // another worker answers each question
				var m map[string]any
				err := json.Unmarshal(question, &m)
				m["can_load"], m["process"] = true, "other"
				answer, _ := json.Marshal(m)
				time.Sleep(50 * time.Millisecond)
				return answer, err
			},
		})
		var running sync.WaitGroup
		running.Go(func() { watch.Run(ctx) })
		store := loads{unreachable{}, watch, allKnown{}, another{}, nil, nil}
		for range 100 {
			_, _ = store.Load(ctx, "short", 1, 0)
			_, err := store.LoadStrict(ctx, "strict", func() int64 { return 1 }, 0)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		cancel()
		running.Wait()
		if now != standby.Standby {
			t.Errorf("2 s after it was cut off its state is %v, want %v", now, standby.Standby)
		}
	})
}
