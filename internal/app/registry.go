package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/registry/natsbus"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/workerid"
)

var errFirstCheck = errors.New("this worker has not checked its registry yet")

// stoppable are the modes that a stop of the registry by an incident can end. Each incident ends at least segments.
var stoppable = []worker.Mode{worker.Segment, worker.Snowflake, worker.Tags}

// registry decides whether this worker may load and issue from its registry, the buckets of its namespace. It exchanges
// messages about registries with other workers.
type registry struct {
	*program
	bus    *natsbus.Bus
	member *lineage.Member
	begun  chan struct{} // closed when the first check of the registry has ended
}

// makeBus makes the bus, which carries messages about registries, and asks for 200 ms which other workers exist.
func (m *registry) makeBus(ctx context.Context) error {
	m.bus = natsbus.New(m.links.control, m.cfg.Namespace)
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := m.bus.Call(ctx, m.links.dialOnce); err != nil {
		m.cfg.Log.Debug("it is not known yet which other workers there are", "error", err)
	}
	return nil
}

// checked lets this worker serve after the first check of its registry. err is the result of that check. If the check
// failed, the worker serves segments only once it can load, or knows whether another worker can.
func (m *registry) checked(ctx context.Context, err error) {
	close(m.begun)
	m.reasons.Clear(worker.Unchecked, worker.Snowflake)
	if err != nil {
		m.reasons.Set(worker.Unchecked, err, worker.Segment, worker.Tags)
		m.program.watch.Suspect()
		for !m.program.watch.IsSettled() && jitter.Sleep(ctx, 10*time.Millisecond) == nil {
		}
	}
	m.reasons.Clear(worker.Unchecked, worker.Segment, worker.Tags)
}

// assemble reads what this worker remembers of its registry. The worker serves nothing until the first check has ended.
func (m *registry) assemble() (err error) {
	m.begun = make(chan struct{})
	m.reasons.Set(worker.Unchecked, errFirstCheck, stoppable...)
	tags, self := m.storage.tags, m.self()
	m.member, err = lineage.Open(lineage.Config{
		Bucket: tags.Own(), Tags: tags, Kind: tags.Kind(), Rows: tags.Kind() == era.Guarded,
		Dir: m.cfg.Data, Name: m.instance, Numbers: func() string { return m.keeper.Status().Registry },
		Embedded: m.links.embedded != nil, Poll: m.cfg.TagPoll,
		Links: m.storage.reconnects,
		Bus:   m.bus, Serving: m, Settled: m.answerFor, Unused: m.storage.isUnused,
		Pin: m.cfg.Registry, Fields: self.Fields, Process: self.Process, Log: m.cfg.Log,
	})
	return err
}

// self returns the notice by which this worker introduces itself to others: who it is, and what it makes.
func (m *registry) self() lineage.Notice {
	who, d := m.keeper.Who(), workerid.DeploymentOf(m.cfg.Layout)
	return lineage.Notice{
		Process: who.Process, Instance: who.Instance,
		Fields: lineage.Fields{Layout: d.Layout, Epoch: d.Epoch, Unit: d.Unit},
	}
}

var _ lineage.Serving = (*registry)(nil)

// Refuse implements [lineage.Serving].
func (m *registry) Refuse(why error, all bool) {
	if all {
		m.reasons.Set(worker.Stopped, why, stoppable...)
		return
	}
	m.reasons.Clear(worker.Stopped, worker.Snowflake, worker.Tags)
	m.reasons.Set(worker.Stopped, why, worker.Segment)
}

// Allow implements [lineage.Serving].
func (m *registry) Allow() { m.reasons.Clear(worker.Stopped, stoppable...) }

// Alarm implements [lineage.Serving]: it raises the alarm that all workers of the registry were stopped.
func (m *registry) Alarm(cause era.Cause, message string) {
	kinds := map[era.Cause]wire.Alarm{
		era.WentBack: wire.AlarmMarksWentBack, era.Lost: wire.AlarmMarksLost,
		era.Exposed: wire.AlarmBucketUnfit, era.Second: wire.AlarmSecondRegistry,
	}
	m.alarms.raiseAbout(kinds[cause], string(cause), message)
}

// JournalAlarm implements [lineage.Serving].
func (m *registry) JournalAlarm(message string) {
	m.alarms.raiseAbout(wire.AlarmStateFile, "lineage", message)
}

// answerFor makes this worker answer questions about its registry.
func (m *registry) answerFor(registry string) {
	if err := m.bus.Join(registry, m.member.Answer); err != nil {
		m.cfg.Log.Error("cannot listen for questions about the registry, so a second one may not be noticed; "+
			"allow this worker to subscribe to the subjects of registries", "error", err)
	}
}

// mayFound implements [buckets.Config.MayFound] for the bucket of marks. It returns an error if this worker or another
// one knows a registry of this namespace: then the bucket is not the first, and the old one may be lost or out of
// reach.
func (m *registry) mayFound(ctx context.Context) error {
	if m.member.Remembers() {
		return fmt.Errorf("%w: the data directory %s remembers it", buckets.ErrInUse, m.cfg.Data)
	}
	all, err := m.notices(ctx)
	for _, n := range all {
		if n.Registry != "" {
			err = fmt.Errorf("%w: worker %q rests on registry %s", buckets.ErrInUse, n.Instance, n.Registry)
		}
	}
	return err
}

// notices asks one worker of each registry in the namespace for its notice, which says who it is and what it makes.
func (m *registry) notices(ctx context.Context) ([]lineage.Notice, error) {
	all, err := lineage.AskFunc(m.bus.Ask).Notices(ctx, m.self())
	if errors.Is(err, natsbus.ErrNobody) {
		err = nil
	}
	return all, err
}

// ErrOther is returned while another worker of the namespace makes snowflakes with another layout, epoch or tick.
var ErrOther = errors.New("another worker of this namespace makes other snowflakes")

// mayMake returns [ErrOther] if a live worker of the namespace makes snowflakes with another layout, epoch or tick.
func (m *registry) mayMake(ctx context.Context) error {
	all, err := m.notices(ctx)
	own := m.self().Fields
	for _, n := range all {
		if n.Fields != own {
			return fmt.Errorf("%w: worker %q has layout %s, epoch %d, ticks of %d ms; this one was started with "+
				"layout %s, epoch %d, ticks of %d ms: start it with the same; docs/layouts.md says how to change it",
				ErrOther, n.Instance, n.Layout, n.Epoch, n.Unit, own.Layout, own.Epoch, own.Unit)
		}
	}
	return err
}

// ask ends the start with [ErrOther] if another worker of the namespace makes snowflakes with another layout, epoch or
// tick: such snowflakes could equal this worker's.
func (m *registry) ask(ctx context.Context) error {
	err := m.mayMake(ctx)
	if err != nil && !errors.Is(err, ErrOther) {
		m.cfg.Log.Warn("the question which registries there are was not asked", "error", err)
		return nil
	}
	return err
}

// watch checks the registry until ctx ends. Then it records in the bucket of marks that this worker stopped cleanly.
func (m *registry) watch(ctx context.Context) {
	if err := m.bus.Listen(m.member.Hear); err != nil {
		m.quit(err)
		return
	}
	logs := m.links.control.Opts.ReconnectedCB
	m.links.control.SetReconnectHandler(func(nc *nats.Conn) {
		m.member.Reconnected()
		m.program.watch.Suspect()
		logs(nc)
	})
	var joining sync.WaitGroup
	m.member.Run(ctx, func(err error) { joining.Go(func() { m.checked(ctx, err) }) })
	joining.Wait()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.links.atStop(3*time.Second))
	defer cancel()
	if err := m.member.Stop(stopping); err != nil {
		m.cfg.Log.Warn("stopped, but the bucket of marks does not say so", "error", err)
	}
}

// hasSecond reports whether this registry is stopped because workers of another registry serve the same subjects.
func (m *registry) hasSecond() bool {
	in := m.member.Identity().Incident
	return in != nil && in.Other != ""
}

// marksInUse returns the ID of the registry whose marks (each tag's next ID) this worker raises, itself or by another
// worker; "" while it must not issue.
func (m *registry) marksInUse() string {
	if m.reasons.Forbidden(worker.Segment) != nil {
		return ""
	}
	return m.member.Identity().Registry
}
