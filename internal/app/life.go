package app

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// A step is one part of the program. When it starts, it may use all that the steps above it have started; so it stops
// before they stop.
type step struct {
	name  string
	start func(ctx context.Context) error // nil: nothing to start
	stop  func()                          // nil: nothing to stop
	// within is how long stop should take at most. If stop takes longer, that is logged, and stop is still waited for:
	// the steps above can stop only after it.
	within time.Duration
}

// live starts the steps in order, waits until ctx ends, and stops the steps in reverse order. If a step cannot start,
// live calls quit with the error, which ends ctx, and stops the steps above that step.
func live(ctx context.Context, quit context.CancelCauseFunc, log *slog.Logger, steps []step) {
	started := 0
	for _, s := range steps {
		if s.start != nil {
			if err := s.start(ctx); err != nil {
				quit(err)
				break
			}
		}
		started++
	}
	<-ctx.Done()
	for _, s := range slices.Backward(steps[:started]) {
		if s.stop != nil {
			s.end(log)
		}
	}
}

// end stops a step, however long that takes.
func (s step) end(log *slog.Logger) {
	late := time.AfterFunc(s.within, func() {
		log.Warn("the stop takes longer than it should; still waiting, since the next stops depend on it",
			"step", s.name, "after", s.within)
	})
	defer late.Stop()
	s.stop()
}

// during returns a step that runs f in the background. The context of f ends as soon as the program begins to stop,
// before any step stops. The stop of this step waits until f has returned.
func during(name string, within time.Duration, f func(ctx context.Context)) step {
	var running sync.WaitGroup
	return step{name: name, within: within, stop: running.Wait,
		start: func(ctx context.Context) error {
			running.Go(func() { f(ctx) })
			return nil
		},
	}
}

// until returns a step that runs f in the background. The context of f ends only when the step itself is stopped.
func until(name string, within time.Duration, f func(ctx context.Context)) step {
	var end context.CancelFunc
	s := during(name, within, f)
	start, stop := s.start, s.stop
	s.start = func(ctx context.Context) error {
		ctx, end = context.WithCancel(context.WithoutCancel(ctx))
		return start(ctx)
	}
	s.stop = func() {
		end()
		stop()
	}
	return s
}
