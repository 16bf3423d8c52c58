package app

import (
	"context"
	"crypto/rand"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/oneregistry"
	"github.com/natsid/natsid/oneregistry/natsbus"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/workerid"
)

// bySecondRegistry is the source of what is refused because of a second registry.
const bySecondRegistry = "second registry"

// makeWatch makes the watch for a second registry. From here on nothing is served until it has asked: see
// [program.askRegistries].
func (p *program) makeWatch(context.Context) error {
	bus := natsbus.New(p.links.control, p.cfg.Namespace)
	d := workerid.DeploymentOf(p.cfg.Layout)
	p.watch = oneregistry.New(oneregistry.Config{
		Home: &home{storage: &p.storage, segments: p.allocator, created: p.created}, Bus: bus,
		Process: rand.Text(), Layout: d.Layout, Epoch: d.Epoch, Unit: d.Unit, Instance: p.instance,
		Pin: p.cfg.Registry, StateDir: p.cfg.Data, Refuse: p.refuseRegistry,
		Alarm: p.alarmRegistry, Jitter: jitter.UpTo, Log: p.cfg.Log,
	})
	p.storage.besideOthers = p.watch.MayFound
	return bus.Listen(p.watch)
}

// refuseRegistry refuses what must not be served because of a second registry, and allows the rest.
func (p *program) refuseRegistry(r oneregistry.Refused) {
	for mode, why := range map[worker.Mode]error{
		worker.Segment: r.Segments, worker.Snowflake: r.Snowflakes, worker.Tags: r.Tags,
	} {
		if why == nil {
			p.refusals.allow(bySecondRegistry, mode)
		} else {
			p.refusals.refuse(bySecondRegistry, why, mode)
		}
	}
}

// alarmRegistry raises the alarm about one event: that marks were merged, and which IDs were given twice, comes within
// a second of the one that says that there is another registry.
func (p *program) alarmRegistry(event, message string) {
	p.alarms.raiseAbout(subjects.AlarmSecondRegistry, event, message)
}

// askRegistries asks which registries there are, before anything is served.
func (p *program) askRegistries(ctx context.Context) error { return p.watch.Start(ctx) }

// watchRegistries watches for a second registry until ctx ends.
func (p *program) watchRegistries(ctx context.Context) error {
	p.watch.Run(ctx)
	return nil
}
