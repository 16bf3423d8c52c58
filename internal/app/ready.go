package app

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/natsid/natsid/internal/ops/monitor"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/worker"
)

// modes returns, for each mode, why this worker cannot issue IDs of the mode; nil if it can.
func (p *program) modes() map[string]error {
	return map[string]error{
		string(worker.Segment):   p.segmentTrouble(),
		string(worker.Snowflake): p.snowflakeTrouble(),
	}
}

// state returns the metadata of this worker's answers over NATS. Each mode has the same state as in /readyz.
func (p *program) state() map[string]string {
	k := p.keeper.Status()
	state := map[string]string{
		wire.MetaInstance: k.Instance, wire.MetaNumber: "",
	}
	if k.Held {
		state[wire.MetaNumber] = strconv.Itoa(k.Number)
	}
	for mode, why := range p.modes() {
		state[mode] = monitor.State(why)
	}
	return state
}

// segmentTrouble returns why callers get no segment IDs from this worker, nil if they get some. Either this worker does
// not serve them, or no worker, this or another, can load further ranges.
func (p *program) segmentTrouble() error {
	err := p.worker.Trouble(worker.Segment)
	if server := p.links.embedded; err == nil && server != nil {
		err = server.Trouble()
	}
	if err != nil || p.watch.IsAnswered() {
		return err
	}
	unable := p.watch.Trouble()
	if unable != nil {
		unable = fmt.Errorf("nothing can be loaded: %w", unable)
	}
	return cmp.Or(p.storage.tags.Own().Trouble(), unable, p.segments.Trouble())
}

func (p *program) snowflakeTrouble() error {
	err, k := p.worker.Trouble(worker.Snowflake), p.keeper.Status()
	if err != nil && k.Trouble != nil {
		return fmt.Errorf("%w (%w)", err, k.Trouble)
	}
	return err
}

// missingAfter is how long a start may take before the log shows why a mode cannot issue IDs.
const missingAfter = 15 * time.Second

// announce calls cfg.Ready once all modes can issue IDs. Until then it logs every 15 s why they cannot.
func (p *program) announce(ctx context.Context) {
	missing := time.NewTicker(missingAfter)
	defer missing.Stop()
	for p.segmentTrouble() != nil || p.snowflakeTrouble() != nil {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-missing.C:
			var what []any
			for mode, why := range p.modes() {
				what = append(what, mode, monitor.State(why))
			}
			p.cfg.Log.Warn("not ready yet; still trying", what...)
		case <-ctx.Done():
			return
		}
	}
	if p.cfg.Ready == nil {
		return
	}
	w, s := p.links.where, p.keeper.Status()
	w.Instance, w.Number = s.Instance, s.Number
	if l := p.http.listener; l != nil {
		w.HTTP = l.Addr().String()
	}
	p.cfg.Ready(w)
}
