package app

import (
	"context"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/ops/metrics"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/workerid"
)

// answerViews answers workers that ask for this one's state.
func (p *program) answerViews(context.Context) error {
	p.started = p.cfg.Now().UTC()
	_, err := fleetview.Answer(p.links.control, p.cfg.Namespace, p.cfg.Log, p.view)
	return err
}

// keepHour records the last hour of this worker, until ctx ends.
func (p *program) keepHour(ctx context.Context) error {
	before := make(map[worker.Mode]metrics.Totals)
	p.hour.Run(ctx, p.cfg.Now, func() map[string]fleetview.Point {
		points := make(map[string]fleetview.Point)
		for _, mode := range viewed {
			now := p.metrics.Totals(mode)
			t := now.Since(before[mode])
			before[mode] = now
			points[string(mode)] = fleetview.Point{
				Requests: t.Requests, Refused: t.Refused, IDs: t.IDs,
				Median: t.Within(0.5), Slow: t.Within(0.99), Lag: p.worker.Lag(mode),
			}
		}
		return points
	})
	return nil
}

// viewed are the modes that issue IDs.
var viewed = []worker.Mode{worker.Segment, worker.Snowflake}

// view returns the state of this worker. It does not block.
func (p *program) view(q subjects.ViewRequest) subjects.WorkerView {
	k := p.keeper.Status()
	state := p.ready.state()
	d := workerid.DeploymentOf(p.cfg.Layout)
	v := subjects.WorkerView{
		Version: p.cfg.Version, Started: p.started, OffsetMs: k.Offset.Milliseconds(),
		Registry: k.Registry, Layout: d.Layout, Drained: state[subjects.MetaDrained] != "",
		Modes: make(map[string]subjects.ModeView),
	}
	if k.Held {
		v.Since, v.Until = time.UnixMilli(k.Since).UTC(), time.UnixMilli(k.Until).UTC()
	}
	for _, mode := range viewed {
		t := p.metrics.Totals(mode)
		v.Modes[string(mode)] = subjects.ModeView{
			State: state[string(mode)], LagSeconds: subjects.Fraction(p.worker.Lag(mode).Seconds()),
			Requests: t.Requests, Refused: t.Refused, IDs: t.IDs,
		}
	}
	p.addTags(&v, q)
	if q.Hour {
		v.Hour = p.hour.View()
	}
	return v
}

// addTags adds the statistics of the tags, and the numbers of waiting requests.
func (p *program) addTags(v *subjects.WorkerView, q subjects.ViewRequest) {
	busiest := 0
	if q.Busiest {
		busiest = subjects.MaxBusiest
	}
	v.Statistics = p.worker.Stats(busiest)
	if q.Tag != "" {
		v.Tag, v.Grants = p.worker.StatsOf(q.Tag), p.grants.last(q.Tag)
	}
	v.Statistics.Instance = p.instance() // also before any request is served
	wait := func(mode worker.Mode, waiting int) {
		m := v.Modes[string(mode)]
		m.Waiting = waiting
		v.Modes[string(mode)] = m
	}
	wait(worker.Segment, v.Statistics.Waiting)
	wait(worker.Snowflake, p.issuer.Waiting())
}
