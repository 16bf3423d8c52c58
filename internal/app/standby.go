package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/fleet/standby"
	"github.com/natsid/natsid/worker"
)

func (p *program) standbyConfig() standby.Config {
	return standby.Config{
		Process: rand.Text(), Name: p.instance, Kind: p.storage.kindOfLoads(), Registry: p.registryOfLoads,
		Probe: p.probe, Serves: func() bool { return p.worker.Trouble(worker.Segment) == nil },
		Change: p.changeStanding, Ask: p.askOther, Log: p.cfg.Log,
	}
}

// kindOfLoads names the stores that a load of this worker writes to.
func (s *storage) kindOfLoads() string {
	if s.cfg.OnMySQL() {
		return "table and marks"
	}
	return "marks"
}

// registryOfLoads returns the registry that loads use, "" if it is not known yet.
func (p *program) registryOfLoads() string {
	if m := p.membership.member; m != nil {
		return m.Identity().Registry
	}
	return p.keeper.Status().Registry
}

// probe returns nil once this worker can load.
func (p *program) probe(ctx context.Context) error {
	if err := p.settings.Known(ctx); err != nil {
		return err
	}
	return p.storage.probe(ctx)
}

// probe returns nil once all stores of a load have taken a write that was sent after the call.
func (s *storage) probe(ctx context.Context) error {
	if s.table != nil {
		if err := s.table.Probe(ctx); err != nil {
			return err
		}
	}
	if m := s.membership.member; m != nil {
		return m.Prove(ctx)
	}
	return nil
}

// canLoad reports whether this worker can load ranges, as far as it knows. A worker that was disconnected cannot
// until its registry was checked again.
func (p *program) canLoad() bool {
	return len(p.reasons.Of(worker.Segment)) == 0 && p.segments.Trouble() == nil && p.standby.Trouble() == nil &&
		!p.settings.Unread() && (p.membership.member == nil || p.membership.member.Checked())
}

// askOther asks another worker whether it can load. The question uses the connection on which requests arrive: this
// worker may have lost the control connection.
func (p *program) askOther(ctx context.Context, question []byte) ([]byte, error) {
	answer, err := p.worker.Request(ctx, p.cfg.Namespace.RegistryStore(), question)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, standby.ErrNobody
	}
	return answer, err
}

// changeStanding leaves the queue groups of segments and tags, or joins them again.
func (p *program) changeStanding(s standby.State, why error) {
	switch modes := []worker.Mode{worker.Segment, worker.Tags}; s {
	case standby.Leaving:
		p.reasons.Set(worker.Standby, fmt.Errorf("this worker cannot load, and another one can: %w", why), modes...)
	case standby.Standby:
		p.segments.TurnAway()
	case standby.Serving:
		p.segments.Admit()
		p.reasons.Clear(worker.Standby, modes...)
	}
}
