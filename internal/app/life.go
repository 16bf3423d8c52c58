package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// A step is one part of the program. Its start may use everything that the steps above it have started, and it stops
// before them.
type step struct {
	name  string
	start func(ctx context.Context) error // nil: nothing to start
	stop  func() error                    // nil: nothing to stop
	// within is how long stop should take at most. If it takes longer, that is logged, and live still waits for it: the
	// steps above depend on it.
	within time.Duration
}

// live starts the steps in order, waits until ctx ends, and stops them in reverse order. If a step cannot start, live
// calls quit, which ends ctx, and stops the steps before it. It returns the errors of all steps, joined.
func live(ctx context.Context, quit func(), log *slog.Logger, steps []step) error {
	var errs []error
	started := 0
	for _, s := range steps {
		if s.start != nil {
			if err := s.start(ctx); err != nil {
				errs = append(errs, err)
				quit()
				break
			}
		}
		started++
	}
	<-ctx.Done()
	for _, s := range slices.Backward(steps[:started]) {
		if s.stop != nil {
			errs = append(errs, s.end(log))
		}
	}
	return errors.Join(errs...)
}

// end stops a step, and waits however long that takes.
func (s step) end(log *slog.Logger) error {
	late := time.AfterFunc(s.within, func() {
		log.Warn("the stop takes longer than it should; still waiting, since the next stops depend on it",
			"step", s.name, "after", s.within)
	})
	defer late.Stop()
	return s.stop()
}

// during returns a step that runs f in the background. The context of f ends when the stop of the program begins; f
// returns then, or earlier. The stop of the step waits for f.
func during(name string, within time.Duration, f func(ctx context.Context) error) step {
	var running sync.WaitGroup
	var err error
	return step{name: name, within: within,
		start: func(ctx context.Context) error {
			running.Go(func() { err = f(ctx) })
			return nil
		},
		stop: func() error {
			running.Wait()
			return err
		},
	}
}

// until returns a step that runs f in the background. The context of f ends only when the step itself is stopped.
func until(name string, within time.Duration, f func(ctx context.Context) error) step {
	var end context.CancelFunc
	s := during(name, within, f)
	start, stop := s.start, s.stop
	s.start = func(ctx context.Context) error {
		ctx, end = context.WithCancel(context.WithoutCancel(ctx))
		return start(ctx)
	}
	s.stop = func() error {
		end()
		return stop()
	}
	return s
}
