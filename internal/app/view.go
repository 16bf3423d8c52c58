package app

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/ops/metrics"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/workerid"
)

// A viewer answers questions for the state of this worker, over NATS and for its own page.
type viewer struct {
	*program
	started time.Time
	hour    fleetview.Hour
	stages  fleetview.Stages
}

// answer starts to answer requests over NATS for the state of this worker.
func (v *viewer) answer(context.Context) error {
	v.started = v.cfg.Now().UTC()
	if err := v.stages.Listen(v.links.control, v.cfg.Namespace, v.cfg.Now); err != nil {
		return err
	}
	_, err := v.links.control.Subscribe(wire.TagChanged(v.cfg.Namespace), func(m *nats.Msg) {
		v.alarms.end(wire.AlarmTagUndecided, string(m.Data)) // a load of a tag still undecided raises it again
	})
	if err != nil {
		return err
	}
	_, err = fleetview.Answer(v.links.control, v.cfg.Namespace, v.cfg.Log, v.view)
	return err
}

// keepHour records the figures of the last hour until ctx ends.
func (v *viewer) keepHour(ctx context.Context) {
	before := make(map[worker.Mode]metrics.Totals)
	v.hour.Run(ctx, v.cfg.Now, func() map[string]wire.HourPoint {
		points := make(map[string]wire.HourPoint)
		for _, mode := range viewed {
			now := v.metrics.Totals(mode)
			t := now.Since(before[mode])
			before[mode] = now
			points[string(mode)] = wire.HourPoint{
				Requests: t.Requests, Refused: t.Refused, IDs: t.IDs, MedianUs: t.Within(0.5).Microseconds(),
				SlowUs: t.Within(0.99).Microseconds(), LagMs: v.worker.Lag(mode).Milliseconds(),
			}
		}
		return points
	})
}

// viewed are the modes that the page shows: those that issue IDs.
var viewed = []worker.Mode{worker.Segment, worker.Snowflake}

// view returns the state of this worker. It does not block.
func (v *viewer) view(q wire.ViewRequest) wire.WorkerView {
	k, state, d, busiest := v.keeper.Status(), v.state(), workerid.DeploymentOf(v.cfg.Layout), 0
	var stages []wire.StageView
	if q.Busiest {
		busiest, stages = wire.MaxBusiest, v.stages.Now(v.cfg.Now())
	}
	w := wire.WorkerView{
		Version: v.cfg.Version, Started: v.started, OffsetMs: k.Offset.Milliseconds(),
		Registry: v.registryOfLoads(), Era: v.registry.member.Eras().Era, Pinned: v.cfg.Registry != "",
		Layout: d.Layout, Alarms: v.alarms.nowOpen(),
		Modes: make(map[string]wire.ModeView), Statistics: v.worker.Stats(busiest), Stages: stages,
	}
	w.Statistics.Instance = k.Instance // Stats does not know it before requests are served
	if k.Held {
		w.Since, w.Until = time.UnixMilli(k.Since).UTC(), time.UnixMilli(k.Until).UTC()
	}
	waiting := map[worker.Mode]int{worker.Segment: w.Statistics.Waiting, worker.Snowflake: v.issuer.Waiting()}
	for _, mode := range viewed {
		t := v.metrics.Totals(mode)
		w.Modes[string(mode)] = wire.ModeView{
			State: state[string(mode)], LagSeconds: wire.Fraction(v.worker.Lag(mode).Seconds()),
			Requests: t.Requests, Refused: t.Refused, IDs: t.IDs, Waiting: waiting[mode],
			Codes: v.metrics.Refusals(mode),
		}
	}
	if q.Tag != "" {
		w.Tag = v.worker.StatsOf(q.Tag)
	}
	if q.Hour {
		w.Hour = v.hour.View()
	}
	return w
}
