package app

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/kvstore"
	"github.com/natsid/natsid/segment/witness"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// wentBack is the source of refusals while the marks are being repaired.
const wentBack = "marks that went back"

// firstCheck is the source of refusals until the first check of the marks is over.
const firstCheck = "first check of the marks"

var errFirstCheck = errors.New("the other workers are asked whether the marks are in order")

// awaitMarks refuses segments until the first check of the marks is over: a worker that must wait for others, 2 s at
// most, cannot load meanwhile, and those that can load are to get the requests. Without JetStream, requests are
// answered 503 at once.
func (s *storage) awaitMarks() {
	s.begun = make(chan struct{})
	if s.witness == nil {
		close(s.begun)
		return
	}
	if !s.late {
		s.refusals.refuse(firstCheck, errFirstCheck, worker.Segment)
	}
}

// joinLater is how long it takes to find out which workers can load.
const joinLater = 1500 * time.Millisecond

// marksChecked ends what awaitMarks began. A worker whose check failed joins the others a moment later: by then it
// knows whether they can load.
func (s *storage) marksChecked(err error) {
	close(s.begun)
	allow := func() { s.refusals.allow(firstCheck, worker.Segment) }
	if err == nil {
		allow()
		return
	}
	s.suspect()
	time.AfterFunc(joinLater, allow)
}

// openWitness opens the journal of the witness, before the bucket of the marks is
// opened.
func (s *storage) openWitness(name func() string) (err error) {
	s.witness, err = witness.Open(witness.Config{
		Bucket: s.marks.Own(), Store: lateTags{s}, Dir: s.cfg.Data, Name: name, Poll: s.cfg.TagPoll,
		Embedded: s.links.embedded != nil,
		Registry: s.identity, Enough: s.marks.Own().Enough,
		Announce: func(m []byte) error { return s.links.control.Publish(s.cfg.Namespace.Witness(), m) },
		Ask:      s.askWitnesses, Reconnects: func() uint64 { return s.links.control.Stats().Reconnects },
		Refuse: func(why error) { s.refusals.refuse(wentBack, why, worker.Segment) },
		Allow:  func() { s.refusals.allow(wentBack, worker.Segment) },
		Begun:  s.marksChecked,
		Alarm:  func(message string) { s.raiseAbout(subjects.AlarmStoreWentBack, "marks", message) },
		JournalAlarm: func(message string) {
			s.raiseAbout(subjects.AlarmStateFile, "witness", message)
		},
		NewerAlarm: func(message string) {
			s.raiseAbout(subjects.AlarmBucketChanged, "newer", message)
		},
		Log: s.cfg.Log,
	})
	return err
}

// askWitnesses asks the other workers, and passes their answers on until they are
// enough or ctx ends.
func (s *storage) askWitnesses(ctx context.Context, m []byte, hear func(reply []byte) (enough bool)) {
	control := s.links.control
	inbox := control.NewInbox()
	answers, err := control.SubscribeSync(inbox)
	if err != nil {
		return
	}
	defer func() { _ = answers.Unsubscribe() }()
	for pause := 200 * time.Millisecond; ctx.Err() == nil; pause *= 2 { // each question costs an answer of every worker
		_ = control.PublishRequest(s.cfg.Namespace.Witness(), inbox, m) // again for those that just connected
		for {
			soon, cancel := context.WithTimeout(ctx, pause)
			answer, err := answers.NextMsgWithContext(soon)
			cancel()
			if err != nil {
				break
			}
			if hear(answer.Data) {
				return
			}
		}
	}
}

// lateTags is the store of the tags, which is opened after the witness.
type lateTags struct{ *storage }

// Lift implements [segment.Lifter].
func (l lateTags) Lift(ctx context.Context, tag string, f segment.Floor) error {
	return l.tags.(segment.Lifter).Lift(ctx, tag, f) // both stores are
}

// List lists the tags.
func (l lateTags) List(ctx context.Context, after string, limit int) ([]segment.Tag, error) {
	return l.tags.List(ctx, after, limit)
}

// identity returns the registry of the marks for the witness.
func (s *storage) identity(ctx context.Context, now bool) (registry string, confirmed time.Time, err error) {
	id := s.marks.Identity()
	if now || id.Registry == "" {
		id, err = s.marks.Check(ctx)
	}
	if errors.Is(err, kvstore.ErrNoIdentity) || errors.Is(err, kvstore.ErrRegistry) {
		err = nil // the witness compares it with what it remembers
	}
	return id.Registry, id.Confirmed, err
}

// mayFound is asked before a bucket of marks gets an identity.
func (s *storage) mayFound(ctx context.Context) error {
	if err := s.witness.MayFound(ctx); err != nil {
		return err
	}
	return s.besideOthers(ctx)
}

// marksWentBack is called when a write shows that the marks went back.
func (s *storage) marksWentBack(why string) {
	if s.witness != nil { // nil while the first write of the start is under way
		s.witness.WentBack(why)
	}
}

// raised is called when an operator has raised all tags.
func (s *storage) raised(ctx context.Context, by int64) error {
	if s.witness == nil {
		return nil
	}
	return s.witness.Raised(ctx, by)
}

// gated returns the store from which ranges are loaded.
func (s *storage) gated() segment.Store {
	if s.witness == nil {
		return s.tags
	}
	return s.witness.Gate(s.tags)
}

// watchMarks keeps the witness of the marks until ctx ends, and then says in it
// that this worker stopped cleanly.
func (p *program) watchMarks(ctx context.Context) error {
	w, control := p.storage.witness, p.links.control
	if w == nil {
		return nil
	}
	heard, err := control.Subscribe(p.cfg.Namespace.Witness(), func(m *nats.Msg) {
		if reply := w.Hear(m.Data); m.Reply != "" {
			_ = m.Respond(reply) // a worker without an answer asks again
		}
	})
	if err != nil {
		return err
	}
	defer func() { _ = heard.Unsubscribe() }() // the connection closes soon
	logs := control.Opts.ReconnectedCB
	control.SetReconnectHandler(func(nc *nats.Conn) {
		w.Reconnected()
		p.aside.Suspect()
		logs(nc)
	})
	w.Run(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.atStop(3*time.Second))
	defer cancel()
	if err := w.Stop(ctx); err != nil {
		p.cfg.Log.Warn("stopped, but the marks do not say so: if they are restored from a backup while this worker is "+
			"down, segments are refused until it has started again", "error", err)
	}
	return nil
}
