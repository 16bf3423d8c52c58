package lineage

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

const (
	tick = time.Second // pause between looks at what is due
	// checkTimeout bounds a check that no load waits for; checkRequests is the most requests that a check sends.
	checkTimeout  = 3 * time.Second
	checkRequests = 8
)

// Run checks the registry at the start, when something raises a doubt, and once per Poll, and looks at other
// registries until ctx ends. It calls begun with the result of the first check. Call Run once.
func (w *Member) Run(ctx context.Context, begun func(error)) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	err := w.checkNow(ctx, slog.LevelWarn, true)
	all, unasked := w.all(ctx) // which registries there are, before anything is served
	if unasked != nil {
		w.cfg.Log.Debug("no other registry was asked for", "error", unasked)
	}
	for _, n := range all {
		w.hear(n)
	}
	w.meet(ctx)
	begun(err)
	var looked time.Time // when the last thorough check of this goroutine ended well
	if err == nil {
		looked = w.cfg.Now()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			w.onWake(ctx)
		case <-ticks.C:
			if w.onTick(ctx, w.cfg.Now().Sub(looked) >= w.cfg.Poll) {
				looked = w.cfg.Now()
			}
		}
	}
}

func (w *Member) meet(ctx context.Context) {
	_ = w.checks.do(ctx, func() error { w.checks.meet(ctx); return nil }) // it fails only when ctx ends
}

// onWake checks the registry after a doubt or a proof, or if the last check is so old that a load will need a new one.
func (w *Member) onWake(ctx context.Context) {
	switch {
	case !w.isSound(fresh):
		_ = w.checkNow(ctx, slog.LevelDebug, false) // if a load fails because of this, that is logged
	case !w.isSound(ageing):
		limited, cancel := context.WithTimeout(ctx, fresh-ageing) // loads check by themselves after that
		defer cancel()
		_ = w.checks.do(limited, func() error { return w.checks.check(limited, false) })
	}
	w.meet(ctx)
}

// onTick announces the registry if that is due, and checks it: each time while the registry is stopped, otherwise
// thoroughly if isDue. looked reports whether a thorough check found the registry sound.
func (w *Member) onTick(ctx context.Context, isDue bool) (looked bool) {
	w.announceIfDue()
	w.meet(ctx)
	switch {
	case w.Stopped() != nil:
		_ = w.checkNow(ctx, slog.LevelInfo, false)
	case isDue && w.checkNow(ctx, slog.LevelDebug, true) == nil:
		_ = w.checks.do(ctx, func() error { w.own.saveFloors(); return nil }) // it fails only when ctx ends
		return true
	}
	return false
}

// checkNow checks the registry. A failure is logged, and the next load checks again.
func (w *Member) checkNow(ctx context.Context, level slog.Level, thorough bool) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Bucket.Enough(checkRequests, checkTimeout))
	defer cancel()
	return w.checks.do(ctx, func() error {
		err := w.checks.check(ctx, thorough)
		if err != nil && ctx.Err() == nil && w.Stopped() == nil {
			w.cfg.Log.Log(ctx, level, "the registry could not be checked; the next load checks it", "error", err)
		}
		return err
	})
}

// Stop saves how far this worker has loaded each tag, and writes into its own key that it stopped cleanly. Call Stop
// when no load can begin any more.
func (w *Member) Stop(ctx context.Context) error {
	return w.checks.do(ctx, func() error {
		w.own.saveFloors()
		own := w.own
		if own.Incident != "" || own.Written.Token == "" {
			return nil
		}
		if err := own.write(ctx, 0, true); err != nil { // the identity's revision counts in a stop only
			return fmt.Errorf("the own key does not say that this worker stopped cleanly: %w", err)
		}
		return nil
	})
}
