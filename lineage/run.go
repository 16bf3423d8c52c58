package lineage

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

const (
	tick = time.Second // between looks at what is due
	// ageing is the age at which Run makes the next check, if a load was made: then loads that follow need not wait.
	ageing = 2 * time.Second
	// startTimeout bounds the question at the start. Someone may listen to all subjects and never answer.
	startTimeout = 400 * time.Millisecond
)

// Run checks at the start, when there is a doubt, and once a poll; it follows incidents and other registries until ctx
// ends. begun is called once the first check is over, with what it found. Call Run once.
func (w *Member) Run(ctx context.Context, begun func(error)) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	err := w.checkNow(ctx, slog.LevelWarn, true)
	w.meetAll(ctx)
	begun(err)
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			w.onWake(ctx)
		case <-ticks.C:
			w.onTick(ctx)
		}
	}
}

// meetAll asks which other registries there are, before anything is served.
func (w *Member) meetAll(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	all, err := w.cfg.Ask.Notices(limited, w.Notice())
	if err != nil {
		w.cfg.Log.Debug("no other registry was asked for", "error", err)
	}
	for _, n := range all {
		w.hear(n)
	}
	w.try(ctx, func() error { w.meet(ctx); return nil })
}

// onWake checks where there is a doubt or a proof, and ahead of loads.
func (w *Member) onWake(ctx context.Context) {
	w.mu.Lock()
	ahead, state := w.ahead, w.machine.state
	w.ahead = false
	w.mu.Unlock()
	switch {
	case state == Unknown, state == Stopping:
		_ = w.checkNow(ctx, slog.LevelDebug, false) // a load that fails for it is logged
	case ahead:
		limited, cancel := context.WithTimeout(ctx, fresh-ageing) // loads check by themselves after that
		defer cancel()
		w.try(limited, func() error { return w.check(limited, false) })
	}
	w.try(ctx, func() error { w.meet(ctx); return nil })
}

// onTick announces, follows an open incident, and looks at all once a poll.
func (w *Member) onTick(ctx context.Context) {
	w.announceIfDue()
	w.try(ctx, func() error { w.meet(ctx); return nil })
	switch stopped := w.Stopped() != nil; {
	case stopped:
		_ = w.checkNow(ctx, slog.LevelInfo, false)
	case w.cfg.Now().Sub(w.lastLooked()) >= w.cfg.Poll:
		if w.checkNow(ctx, slog.LevelDebug, true) == nil {
			w.try(ctx, func() error { w.journal.writeFloors(w.floors()); return nil })
		}
	}
}

func (w *Member) lastLooked() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastLook
}

func (w *Member) try(ctx context.Context, f func() error) {
	if w.enter(ctx) != nil {
		return
	}
	defer w.leave()
	if err := f(); err != nil && ctx.Err() == nil {
		w.cfg.Log.Debug("the registry could not be checked ahead; a load checks it", "error", err)
	}
}

// checkNow checks the registry. If that fails, which is logged, the next load checks again.
func (w *Member) checkNow(ctx context.Context, level slog.Level, thorough bool) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Enough(checkRequests, checkTimeout))
	defer cancel()
	if err := w.enter(ctx); err != nil {
		return err
	}
	defer w.leave()
	err := w.check(ctx, thorough)
	if err != nil && ctx.Err() == nil && w.Stopped() == nil {
		w.cfg.Log.Log(ctx, level, "the registry could not be checked; the next load checks it again", "error", err)
	}
	return err
}

// Stop ends the life of this worker, once no load can begin any more: its floors go to the data directory, and its own
// key says that it stopped cleanly.
func (w *Member) Stop(ctx context.Context) error {
	if err := w.enter(ctx); err != nil {
		return err
	}
	defer w.leave()
	w.journal.writeFloors(w.floors())
	if w.m.Incident != "" || w.m.Written.Token == "" {
		return nil
	}
	v := view{id: w.Identity()}
	if err := w.write(ctx, &v, true); err != nil {
		return fmt.Errorf("the own key does not say that this worker stopped cleanly: %w", err)
	}
	return nil
}
