package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/gather"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/registry/natsbus"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/workerid"
)

var errFirstCheck = errors.New("this worker has not checked its registry yet")

// stoppable are the modes that an incident of the registry can stop. Each incident stops at least segments.
var stoppable = []worker.Mode{worker.Segment, worker.Snowflake, worker.Tags}

// registry decides whether this worker may load and issue from its registry, and exchanges messages about registries
// with other workers.
type registry struct {
	*program
	bus     *natsbus.Bus
	process string          // random, one per process
	member  *lineage.Member // set when the buckets are opened
	begun   chan struct{}   // closed when the first check of the marks has ended
}

// makeBus creates the bus, which carries messages about registries, and asks who else is there.
func (m *registry) makeBus(ctx context.Context) error {
	m.bus, m.process = natsbus.New(m.links.control, m.cfg.Namespace), rand.Text()
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond) // after that time it is unknown who is there
	defer cancel()
	if err := m.bus.Call(ctx, m.links.dialOnce); err != nil {
		m.cfg.Log.Debug("it is not known yet which other workers there are", "error", err)
	}
	return nil
}

// awaitCheck refuses requests until the first check of the registry has ended. late is why the buckets could not be
// opened, nil if they were. If late is set it refuses none: requests for segments get 503 at once, and snowflakes are
// issued for the rest of the window.
func (m *registry) awaitCheck(late error) {
	m.begun = make(chan struct{})
	if late == nil {
		m.reasons.Set(worker.Unchecked, errFirstCheck, stoppable...)
	}
}

// checked ends the refusals of awaitCheck. err is the result of the first check. A worker that cannot load then serves
// segments as soon as it knows whether another worker can; if it lacks a right to relay, it waits until it can load
// itself.
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

// open opens this worker's memory of its registry, before the bucket of marks is opened.
func (m *registry) open(tags *kvstore.Store, unused func(context.Context) (bool, error)) (err error) {
	m.member, err = lineage.Open(lineage.Config{
		Bucket: tags.Own(), Tags: tags, Kind: tags.Kind(), Rows: tags.Kind() == era.Guarded,
		Dir: m.cfg.Data, Name: m.instance, Numbers: m.deployment,
		Embedded: m.links.embedded != nil, Poll: m.cfg.TagPoll,
		Links: func() uint64 { return m.links.control.Stats().Reconnects },
		Bus:   m.bus, Serving: m, Settled: m.answerFor, Unused: unused,
		Pin: m.cfg.Registry, Fields: m.fields(), Process: m.process, Log: m.cfg.Log,
	})
	return err
}

func (m *registry) fields() lineage.Fields {
	d := workerid.DeploymentOf(m.cfg.Layout)
	return lineage.Fields{Layout: d.Layout, Epoch: d.Epoch, Unit: d.Unit}
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

// Alarm raises the alarm that the registry was stopped.
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

// mayFound implements [buckets.Config.MayFound] for the bucket of marks.
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

// notices asks one worker of each registry in the namespace what that registry is.
func (m *registry) notices(ctx context.Context) ([]lineage.Notice, error) {
	all, err := lineage.AskFunc(m.bus.Ask).Notices(ctx, lineage.Notice{
		Process: m.process, Instance: m.instance(), Fields: m.fields(),
	})
	if errors.Is(err, gather.ErrNobody) {
		err = nil
	}
	return all, err
}

// ErrOther is returned while another worker of the namespace makes snowflakes with another layout, epoch or tick.
var ErrOther = errors.New("another worker of this namespace makes other snowflakes")

// mayMake returns [ErrOther] if a live worker of the namespace makes snowflakes with another layout, epoch or tick.
func (m *registry) mayMake(ctx context.Context) error {
	all, err := m.notices(ctx)
	own := m.fields()
	for _, n := range all {
		if n.Fields != own {
			return fmt.Errorf("%w: worker %q has layout %s, epoch %d, ticks of %d ms; this one was started with "+
				"layout %s, epoch %d, ticks of %d ms: start it with the same, or in a namespace of its own, "+
				"or stop all workers first to change the layout",
				ErrOther, n.Instance, n.Layout, n.Epoch, n.Unit, own.Layout, own.Epoch, own.Unit)
		}
	}
	return err
}

// ask ends the start with [ErrOther] if another worker makes snowflakes with another layout, epoch or tick.
func (m *registry) ask(ctx context.Context) error {
	err := m.mayMake(ctx)
	if err != nil && !errors.Is(err, ErrOther) {
		m.cfg.Log.Warn("the question which registries there are was not asked", "error", err)
		return nil
	}
	return err
}

// watch checks the registry until ctx ends, and then records in its marks that this worker stopped cleanly.
func (m *registry) watch(ctx context.Context) error {
	if err := m.bus.Listen(m.member.Hear); err != nil {
		return err
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
	return nil
}

// hasSecond reports whether this registry is stopped because workers of another registry serve the same subjects.
func (m *registry) hasSecond() bool {
	in := m.member.Identity().Incident
	return in != nil && in.Other != ""
}

// marksInUse returns the ID of the registry whose marks this worker uses, even if only other workers can load; "" while
// it must not issue.
func (m *registry) marksInUse() string {
	if m.reasons.Forbidden(worker.Segment) != nil {
		return ""
	}
	return m.member.Identity().Registry
}
