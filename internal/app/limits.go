package app

import (
	"context"
	"errors"

	"github.com/natsid/natsid/internal/fleet"
	"github.com/natsid/natsid/worker"
)

func (p *program) settingsConfig() fleet.Config {
	return fleet.Config{
		Namespace: p.cfg.Namespace, Bucket: p.storage.settings, HasMarks: p.storage.marks != nil,
		Conn: p.links.control, Gate: &p.gate, Poll: p.cfg.TagPoll, Live: p.liveWorkers, Log: p.cfg.Log,
		SetStrict: func(tags map[string]bool) { p.segments.SetStrict(tags) },
		Doubt:     func() { p.segments.Doubt() },
	}
}

// liveWorkers returns the names of the workers that have a heartbeat.
func (p *program) liveWorkers(ctx context.Context) (names []string, err error) {
	if p.storage.registry == nil {
		return nil, errors.New("the registry is not open")
	}
	beats, err := p.storage.registry.Heartbeats(ctx)
	for _, h := range beats {
		names = append(names, h.Instance)
	}
	return names, err
}

// readSettings reads the settings of tags before any request is served, so that no load waits for them. Without
// JetStream it does not wait.
func (p *program) readSettings(ctx context.Context) error {
	if !p.storage.openedLate {
		p.settings.Begin(ctx)
	}
	return nil
}

func (p *program) followSettings(ctx context.Context) error { return p.settings.Run(ctx) }

// marksInUse names the marks that this worker issues from, also if another worker loads; "" while it must not issue.
func (p *program) marksInUse() string {
	if p.storage.member == nil || p.reasons.Forbidden(worker.Segment) != nil {
		return ""
	}
	return p.storage.member.Identity().Registry
}

// canLoad reports whether this worker can load ranges, as far as it knows. A worker that was disconnected cannot
// until its registry was checked again.
func (p *program) canLoad() bool {
	return len(p.reasons.Of(worker.Segment)) == 0 && p.segments.Trouble() == nil && p.standby.Trouble() == nil &&
		!p.settings.Unread() && (p.storage.member == nil || p.storage.member.Checked())
}

// passOn makes the workers load each strict tag through one of them.
func (p *program) passOn(ctx context.Context) error { return p.ring.Run(ctx) }

// notes returns notes for operators in /readyz, beside the readiness.
func (p *program) notes() (all []string) {
	if throttled := p.gate.Rules().Throttle.String(); throttled != "" {
		all = append(all, "throttled: "+throttled)
	}
	return all
}
