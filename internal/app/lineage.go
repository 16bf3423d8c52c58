package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/gather"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/registry/natsbus"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
	"github.com/natsid/natsid/workerid"
)

var errFirstCheck = errors.New("this worker has not checked its registry yet")

// stoppable are the modes that a registry can stop. Every incident stops segments and tags.
var stoppable = []worker.Mode{worker.Segment, worker.Snowflake, worker.Tags}

// awaitMarks refuses the modes that a registry can stop until the first check is over. Without JetStream no request
// waits: requests for segments are answered 503 at once, and a worker issues snowflakes in the rest of its window.
func (s *storage) awaitMarks() {
	s.begun = make(chan struct{})
	switch {
	case s.member == nil:
		close(s.begun)
	case !s.openedLate:
		s.reasons.Set(worker.Unchecked, errFirstCheck, stoppable...)
	}
}

// joinLater is how long a worker needs to determine which workers can load.
const joinLater = 1500 * time.Millisecond

// marksChecked ends the refusals of awaitMarks. A worker whose check failed joins the others a moment later: by then
// it knows whether they can load.
func (s *storage) marksChecked(err error) {
	close(s.begun)
	s.reasons.Clear(worker.Unchecked, worker.Snowflake, worker.Tags)
	allow := func() { s.reasons.Clear(worker.Unchecked, worker.Segment) }
	if err == nil {
		allow()
		return
	}
	s.suspect()
	time.AfterFunc(joinLater, allow)
}

// openLineage opens the worker's memory of its registry, before the bucket of the marks is opened.
func (s *storage) openLineage() (err error) {
	s.member, err = lineage.Open(lineage.Config{
		Bucket: s.marks.Own(), Tags: lateTags{s}, Kind: string(s.kind()), Dir: s.cfg.Data, Name: s.instance,
		Embedded: s.links.embedded != nil, Poll: s.cfg.TagPoll, MayFound: s.mayFound,
		Reassert: func(ctx context.Context) error { return s.orders().Reassert(ctx) },
		Reread:   func(ctx context.Context) error { return s.orders().Reread(ctx) },
		Links:    func() uint64 { return s.links.control.Stats().Reconnects },
		Bus:      s.bus, Serving: serving{s}, Settled: s.answerFor, Unused: s.isUnused,
		Pin: s.cfg.Registry, Fields: s.fields(), Process: s.process, Log: s.cfg.Log,
	})
	return err
}

func (s *storage) fields() lineage.Fields {
	d := workerid.DeploymentOf(s.cfg.Layout)
	return lineage.Fields{Layout: d.Layout, Epoch: d.Epoch, Unit: d.Unit}
}

// serving is what a registry stops.
type serving struct{ *storage }

var _ lineage.Serving = serving{}

// Refuse implements [lineage.Serving].
func (s serving) Refuse(why error, all bool) {
	if all {
		s.reasons.Set(worker.Stopped, why, stoppable...)
		return
	}
	s.reasons.Clear(worker.Stopped, worker.Snowflake, worker.Tags)
	s.reasons.Set(worker.Stopped, why, worker.Segment)
}

// Allow implements [lineage.Serving].
func (s serving) Allow() { s.reasons.Clear(worker.Stopped, stoppable...) }

// Alarm raises the alarm that the registry was stopped.
func (s serving) Alarm(cause lineage.Cause, message string) {
	kinds := map[lineage.Cause]subjects.Alarm{
		lineage.WentBack: subjects.AlarmMarksWentBack, lineage.Lost: subjects.AlarmMarksLost,
		lineage.Exposed: subjects.AlarmBucketUnfit, lineage.Second: subjects.AlarmSecondRegistry,
	}
	s.raiseAbout(kinds[cause], string(cause), message)
}

// JournalAlarm implements [lineage.Serving].
func (s serving) JournalAlarm(message string) {
	s.raiseAbout(subjects.AlarmStateFile, "lineage", message)
}

// answerFor makes this worker answer for its registry.
func (s *storage) answerFor(registry string) {
	if err := s.bus.Join(registry, s.member.Answer); err != nil {
		s.cfg.Log.Error("cannot listen for questions about the registry, so a second one may not be noticed; "+
			"allow this worker to subscribe to the subjects of registries", "error", err)
	}
}

// isUnused reports whether the registry never had a tag, nor a worker number.
func (s *storage) isUnused(ctx context.Context) (bool, error) {
	tags, err := s.tags.List(ctx, "", 1)
	if err != nil || len(tags) > 0 {
		return false, err
	}
	return s.registry.Unused(ctx)
}

// lateTags is the store of the tags, which is opened after the lineage.
type lateTags struct{ *storage }

// Lift implements [segment.Lifter].
func (l lateTags) Lift(ctx context.Context, tag string, f segment.Floor) (bool, error) {
	return l.tags.(segment.Lifter).Lift(ctx, tag, f) // both stores implement it
}

// List lists the tags.
func (l lateTags) List(ctx context.Context, after string, limit int) ([]segment.Tag, error) {
	return l.tags.List(ctx, after, limit)
}

// mayFound is called before a bucket of marks gets an identity: it returns an error if another bucket is or was in
// use.
func (s *storage) mayFound(ctx context.Context) error {
	if s.member != nil && s.member.Remembers() {
		return fmt.Errorf("the data directory %s remembers another bucket of marks, which is gone", s.cfg.Data)
	}
	all, err := s.notices(ctx)
	for _, n := range all {
		if n.Registry != "" {
			err = fmt.Errorf("worker %q of this namespace rests on registry %s", n.Instance, n.Registry)
		}
	}
	return err
}

// askTimeout bounds a question to all registries. A subscriber to all subjects may never answer.
const askTimeout = 400 * time.Millisecond

// notices asks one worker of each registry for its notice.
func (s *storage) notices(ctx context.Context) ([]lineage.Notice, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all, err := lineage.AskFunc(s.bus.Ask).Notices(ctx, lineage.Notice{
		Process: s.process, Instance: s.instance(), Fields: s.fields(),
	})
	if errors.Is(err, gather.ErrNobody) {
		err = nil
	}
	return all, err
}

// ErrOther is returned while another worker of the namespace makes snowflakes of other fields.
var ErrOther = errors.New("another worker of this namespace makes other snowflakes")

// mayMake returns an error if a live worker of the namespace makes snowflakes of other fields.
func (s *storage) mayMake(ctx context.Context) error {
	all, err := s.notices(ctx)
	own := s.fields()
	for _, n := range all {
		if n.Serves() && n.Fields != own {
			return fmt.Errorf("%w: worker %q has layout %s, epoch %d, ticks of %d ms; this one was started with "+
				"layout %s, epoch %d, ticks of %d ms: start it with the same, or in a namespace of its own, "+
				"or stop all workers first to change the layout",
				ErrOther, n.Instance, n.Layout, n.Epoch, n.Unit, own.Layout, own.Epoch, own.Unit)
		}
	}
	return err
}

// makeBus creates the bus, which carries messages about registries.
func (p *program) makeBus(context.Context) error {
	p.storage.bus = natsbus.New(p.links.control, p.cfg.Namespace)
	p.storage.process = rand.Text()
	return nil
}

// askRegistries ends the start if another worker makes snowflakes of other fields.
func (p *program) askRegistries(ctx context.Context) error {
	err := p.storage.mayMake(ctx)
	if err != nil && !errors.Is(err, ErrOther) {
		p.cfg.Log.Warn("the question which registries there are was not asked", "error", err)
		return nil
	}
	return err
}

// marksWentBack is called when a write shows that the marks went back.
func (s *storage) marksWentBack(why string) {
	if s.member != nil { // nil during the first write of the start
		s.member.WentBack(why)
	}
}

// gated returns the store from which ranges are loaded.
func (s *storage) gated() segment.Store {
	if s.member == nil {
		return s.tags
	}
	return s.member.Gate(s.tags)
}

// watchRegistry checks the registry until ctx ends, and then records there that this worker stopped cleanly.
func (p *program) watchRegistry(ctx context.Context) error {
	m, control := p.storage.member, p.links.control
	if m == nil {
		return nil
	}
	if err := p.storage.bus.Listen(m.Hear); err != nil {
		return err
	}
	logs := control.Opts.ReconnectedCB
	control.SetReconnectHandler(func(nc *nats.Conn) {
		m.Doubt()
		p.standby.Suspect()
		logs(nc)
	})
	m.Run(ctx, p.storage.marksChecked)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.atStop(3*time.Second))
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		p.cfg.Log.Warn("stopped, but the bucket of marks does not say so", "error", err)
	}
	return nil
}

// hasSecond reports whether workers of another registry serve the same subjects, or whether this registry gave way to
// another.
func (s *storage) hasSecond() bool {
	if s.member == nil {
		return false
	}
	id := s.member.Identity()
	return id.Out != "" || id.Incident != nil && id.Incident.Cause == lineage.Second
}

// needsStart reports whether a tag that the bucket lacks may have been in use.
func (s *storage) needsStart() bool {
	if s.member == nil {
		return false
	}
	id := s.member.Identity()
	return id.Unconfirmed || id.Incident != nil
}
