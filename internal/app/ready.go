package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/ops/monitor"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// readiness is the readiness of the modes of a program.
type readiness struct{ *program }

// modes returns for each mode why it cannot issue, nil if it can.
func (r readiness) modes() map[string]error {
	return map[string]error{
		string(worker.Segment):   r.segmentTrouble(),
		string(worker.Snowflake): r.snowflakeTrouble(),
	}
}

// state returns the worker's metadata for questions over NATS: the same as /readyz, since both are [readiness.modes].
func (r readiness) state() map[string]string {
	k := r.keeper.Status()
	state := map[string]string{
		subjects.MetaInstance: k.Instance, subjects.MetaNumber: "",
	}
	if k.Held {
		state[subjects.MetaNumber] = strconv.Itoa(k.Number)
	}
	for mode, why := range r.modes() {
		state[mode] = monitor.State(why)
	}
	return state
}

// outOf returns why NATS or this process keeps a mode out of its queue group, or nil. Other troubles may follow from a
// right that is missing.
func (r readiness) outOf(mode worker.Mode) error {
	if !r.worker.IsConnected() {
		return worker.ErrDisconnected
	}
	for _, out := range r.worker.Outs(mode) {
		if out.Reason == worker.Rights {
			return out.Why
		}
	}
	return r.reasons.Why(mode)
}

func (r readiness) segmentTrouble() error {
	if err := r.outOf(worker.Segment); err != nil {
		return err
	}
	if server := r.links.embedded; server != nil {
		if err := server.Trouble(); err != nil {
			return err
		}
	}
	if !r.watch.IsAnswered() {
		if err := r.loadTrouble(); err != nil {
			return err
		}
	}
	return r.worker.Trouble(worker.Segment)
}

// loadTrouble returns why nothing can be loaded, or nil.
func (r readiness) loadTrouble() error {
	if err := r.storage.tags.Trouble(); err != nil {
		return err
	}
	if err := r.watch.Trouble(); err != nil {
		return fmt.Errorf("nothing can be loaded: %w", err)
	}
	return r.segments.Trouble()
}

func (r readiness) snowflakeTrouble() error {
	if err := r.outOf(worker.Snowflake); err != nil {
		return err
	}
	err := r.worker.Trouble(worker.Snowflake)
	k := r.keeper.Status()
	if errors.Is(err, snowflake.ErrNoNumber) { // with the reason as in `natsid status` and the log
		words := "this worker has no number"
		if k.Held {
			words = fmt.Sprintf("nothing is issued under worker number %d yet", k.Number)
		}
		err = errors.New(strings.ReplaceAll(err.Error(), snowflake.ErrNoNumber.Error(), words))
	}
	if err != nil && k.Trouble != nil {
		return fmt.Errorf("%w (%w)", err, k.Trouble)
	}
	return err
}

// missingAfter is how long a start may take before the log shows why a mode cannot issue.
const missingAfter = 15 * time.Second

// await waits until all modes can issue, and reports whether that came before the end of ctx. Until then it logs
// periodically why they cannot.
func (r readiness) await(ctx context.Context, log *slog.Logger) bool {
	tick, missing := time.NewTicker(20*time.Millisecond), time.NewTicker(missingAfter)
	defer tick.Stop()
	defer missing.Stop()
	for r.segmentTrouble() != nil || r.snowflakeTrouble() != nil {
		select {
		case <-tick.C:
		case <-missing.C:
			var what []any
			for mode, why := range r.modes() {
				what = append(what, mode, monitor.State(why))
			}
			log.Warn("not ready yet; still trying", what...)
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// announce calls cfg.Ready once all modes can issue.
func (p *program) announce(ctx context.Context) error {
	if !p.ready.await(ctx, p.cfg.Log) || p.cfg.Ready == nil {
		return nil
	}
	w, s := p.links.where, p.keeper.Status()
	w.Instance, w.Number = s.Instance, s.Number
	if l := p.http.listener; l != nil {
		w.HTTP = l.Addr().String()
	}
	p.cfg.Ready(w)
	return nil
}
