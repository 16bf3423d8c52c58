package testbed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/app"
)

// startTimeout bounds how long a worker may take until it issues IDs.
const startTimeout = 2 * time.Minute

// A worker is a natsid that was started, on a goroutine of its own.
type worker struct {
	cancel context.CancelFunc // nil once it was stopped
	done   chan error         // what app.Run returned
	where  app.Where          // its addresses when it became ready
}

// start starts a worker, and returns it once it issues IDs. It retries while the data directory is in use: a previous
// run may still wait for a disk that hangs.
func start(cfg app.Config) (w *worker, err error) {
	for until := time.Now().Add(startTimeout); ; time.Sleep(100 * time.Millisecond) {
		if w, err = startOnce(cfg); !errors.Is(err, app.ErrDataInUse) || time.Now().After(until) {
			return w, err
		}
	}
}

func startOnce(cfg app.Config) (*worker, error) {
	ready := make(chan app.Where, 1)
	cfg.Ready = func(where app.Where) { ready <- where }
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{cancel: cancel, done: make(chan error, 1)}
	go func() { w.done <- app.Run(ctx, cfg) }()
	select {
	case w.where = <-ready:
		return w, nil
	case err := <-w.done:
		cancel()
		return nil, fmt.Errorf("it stopped: %w", err)
	case <-time.After(startTimeout):
		return nil, errors.Join(fmt.Errorf("it issues no IDs after %v", startTimeout), w.stop())
	}
}

// running reports whether the worker was started and not stopped. A nil worker was not started.
func (w *worker) running() bool { return w != nil && w.cancel != nil }

// stop stops the worker if it runs, and returns once it has ended.
func (w *worker) stop() error {
	if !w.running() {
		return nil
	}
	w.cancel()
	w.cancel = nil
	return <-w.done
}
