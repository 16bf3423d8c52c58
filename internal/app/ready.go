package app

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/fleet"
	"github.com/natsid/natsid/internal/fleet/standby"
	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/ops/monitor"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/workerid"
)

// readiness is the state from which the readiness of the modes follows.
type readiness struct {
	worker   *worker.Worker
	reasons  *worker.Reasons
	marks    *kvstore.Store // nil if segments need no marks
	segments *segment.Allocator
	standby  *standby.Watch
	keeper   *workerid.Keeper
	streams  *streamWatch
	settings *fleet.Settings
	embedded *natsembed.Host // nil where a NATS is joined
}

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
	if r.settings != nil {
		state[subjects.MetaSettings] = strconv.FormatUint(r.settings.Honoured(), 10)
	}
	if k.Held {
		state[subjects.MetaNumber] = strconv.Itoa(k.Number)
	}
	if r.reasons.Has(worker.Drained) {
		state[subjects.MetaDrained] = "yes"
	}
	for mode, why := range r.modes() {
		state[mode] = monitor.State(why)
	}
	return state
}

// isReady reports whether every mode can issue.
func (r readiness) isReady() bool { return r.segmentTrouble() == nil && r.snowflakeTrouble() == nil }

// outOf returns why this process keeps a mode out of its queue group, or nil.
func (r readiness) outOf(mode worker.Mode) error {
	if !r.worker.IsConnected() {
		return worker.ErrDisconnected
	}
	return r.reasons.Why(mode)
}

func (r readiness) segmentTrouble() error {
	if err := r.outOf(worker.Segment); err != nil {
		return err
	}
	if r.embedded != nil {
		if err := r.embedded.Trouble(); err != nil {
			return err
		}
	}
	if r.marks != nil {
		if err := r.marks.Trouble(); err != nil {
			return err
		}
	}
	if err := r.streams.trouble(worker.Segment); err != nil {
		return err
	}
	if r.settings.Unread() {
		return fleet.ErrUnread
	}
	if err := r.standby.Trouble(); err != nil {
		return fmt.Errorf("nothing can be loaded: %w", err)
	}
	if err := r.segments.Trouble(); err != nil {
		return err
	}
	return r.worker.Trouble(worker.Segment)
}

func (r readiness) snowflakeTrouble() error {
	if err := r.outOf(worker.Snowflake); err != nil {
		return err
	}
	if err := r.streams.trouble(worker.Snowflake); err != nil {
		return err
	}
	err := r.worker.Trouble(worker.Snowflake)
	k := r.keeper.Status()
	if errors.Is(err, snowflake.ErrNoNumber) { // with the reason as in `natsid workers` and the log
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

// announce calls cfg.Ready once all modes can issue. Until then it logs periodically why they cannot.
func (p *program) announce(ctx context.Context) error {
	tick, missing := time.NewTicker(20*time.Millisecond), time.NewTicker(missingAfter)
	defer tick.Stop()
	defer missing.Stop()
	for !p.ready.isReady() {
		select {
		case <-tick.C:
		case <-missing.C:
			p.sayMissing()
		case <-ctx.Done():
			return nil
		}
	}
	s := p.keeper.Status()
	p.where.Instance, p.where.Number = s.Instance, s.Number
	if p.cfg.Ready != nil {
		p.cfg.Ready(p.where)
	}
	return nil
}

// sayMissing logs the state of /readyz.
func (p *program) sayMissing() {
	var what []any
	for mode, why := range p.ready.modes() {
		what = append(what, mode, monitor.State(why))
	}
	p.cfg.Log.Warn("not ready yet; still trying", what...)
}
