package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

var errCut = errors.New("cut off")

// unreachable is a store that cannot be reached.
type unreachable struct{ segment.Store }

func (unreachable) Load(context.Context, string, int64, int64) (segment.Loaded, error) {
	return segment.Loaded{}, errCut
}

// LoadStrict loads as another worker does for this one.
func (unreachable) LoadStrict(_ context.Context, _ string, join func() int64, floor int64) (segment.Loaded, error) {
	start := max(1, floor)
	return segment.Loaded{Range: segment.Range{Start: start, End: start + join()}, Step: 1, Passed: true}, nil
}

func TestWhatAnotherWorkerLoadsShowsNothingOfTheStore(t *testing.T) {
	unable := make(chan struct{}, 10)
	watch := worker.NewWatch(worker.WatchConfig{
		Probe:  func(context.Context) error { return errCut },
		Find:   func(context.Context) error { return nil },
		Change: func(bool, bool) { unable <- struct{}{} },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { watch.Run(ctx); close(ended) }()
	alarms := newAlarms(slog.New(slog.DiscardHandler), nil, nil)
	store := loads{unreachable{}, watch, alarms}
	if _, err := store.Load(ctx, "short", 1, 0); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	<-unable
	if _, err := store.LoadStrict(ctx, "strict", func() int64 { return 1 }, 0); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(watch.Trouble(), errCut) {
		t.Errorf("%v, want %v", watch.Trouble(), errCut)
	}
	cancel()
	<-ended
}
