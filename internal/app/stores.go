package app

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/fleet"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/registry/natsbus"
	"github.com/natsid/natsid/internal/stores/guard"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// storage is the durable state: the buckets in JetStream, and the store of the tags. Its fields are set by the steps
// that open it.
type storage struct {
	cfg   *Config
	links *links
	raise func(kind subjects.Alarm, message string)
	// raiseAbout raises an alarm about one of many objects: see alarms.
	raiseAbout func(kind subjects.Alarm, about, message string)
	reasons    *worker.Reasons
	instance   func() string
	suspect    func()        // makes standby probe the store
	wrote      segment.Wrote // records a write of a mark
	orders     func() *fleet.Settings
	bus        *natsbus.Bus
	process    string // random, one per process

	js         jetstream.JetStream
	streams    buckets.Streams
	registry   *kvregistry.Registry
	marks      *kvstore.Store    // nil if segments need no marks
	settings   *buckets.Bucket   // the bucket of the marks, which also has the settings of tags
	member     *lineage.Member   // nil if segments need no marks
	openedLate bool              // the buckets could not be opened at the start
	begun      chan struct{}     // closed when the first check of the marks is over
	table      *mysqlstore.Table // nil without MySQL
	tags       segment.Store
}

// openBuckets tries once to open the buckets in JetStream. Without JetStream the other steps still start, and
// [storage.openLate] continues: until then requests for segment IDs are answered 503, and a worker that was killed
// issues snowflakes in the rest of its window.
func (s *storage) openBuckets(ctx context.Context) (err error) {
	cfg, ns := *s.cfg, s.cfg.Namespace
	if s.js, err = JetStream(s.links.control, cfg); err != nil {
		return err
	}
	s.streams = buckets.OnJetStream(s.js)
	n := s.replicas()
	s.registry = kvregistry.New(s.js, kvregistry.Config{
		History: ns.HistoryBucket(), Workers: ns.WorkerBucket(),
		LeaseTTL: cfg.LeaseTTL, Replicas: n, Single: s.links.embedded != nil, WorkerSubject: ns.Worker, Log: cfg.Log,
	})
	if !cfg.OnMySQL() || cfg.Guard {
		s.marks = kvstore.New(s.streams, kvstore.Config{
			Bucket: ns.SegmentBucket(), Replicas: n, Kind: s.kind(),
			Lost: func() { s.member.Doubt() }, MayFound: s.mayFound, WentBack: s.marksWentBack, Wrote: s.wrote,
			Log: cfg.Log,
		})
		if err = s.openLineage(); err != nil {
			return err
		}
		s.settings = s.marks.Own()
	} else { // it gets an identity, so that the marks find their bucket should the guard be switched on
		s.settings = kvstore.New(s.streams, kvstore.Config{
			Bucket: ns.SegmentBucket(), Replicas: n, Kind: s.kind(), MayFound: s.mayFound, Log: cfg.Log,
		}).Own()
	}
	err = s.open(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil || errors.Is(err, kvstore.ErrKind) || errors.Is(err, buckets.ErrUnfit) ||
		errors.Is(err, lineage.ErrNewer) {
		return err
	}
	cfg.Log.Warn("JetStream is not ready: no ranges can be loaded, so requests for segment IDs are answered 503; "+
		"snowflakes are issued only in the rest of the window in the state file, if there is one; "+
		"trying again until JetStream is ready", "error", err)
	s.openedLate = true
	return nil
}

// replicas returns the number of replicas for a bucket that this worker creates, 0 to choose.
func (s *storage) replicas() int {
	if s.links.embedded != nil {
		return max(1, s.cfg.Replicas)
	}
	return s.cfg.Replicas
}

// kind returns the use that this worker makes of the marks.
func (s *storage) kind() kvstore.Kind {
	if s.cfg.OnMySQL() {
		return kvstore.Guarded
	}
	return kvstore.Alone
}

// measureEvery is the interval of measurements of JetStream's round trip while it leaves requests unanswered.
const measureEvery = time.Second

// watch checks the settings of the records' bucket once per poll. Those of the marks are checked when the tags are
// compared with the store.
func (s *storage) watch(ctx context.Context) error {
	tick, measure := time.NewTicker(s.cfg.TagPoll), time.NewTicker(measureEvery)
	defer tick.Stop()
	defer measure.Stop()
	for reported := false; ; {
		select {
		case <-tick.C:
		case <-measure.C:
			if s.marks != nil {
				s.marks.Own().Measure(ctx)
			}
			continue
		case <-ctx.Done():
			return nil
		}
		err := s.checkRegistry(ctx)
		switch unfit := errors.Is(err, buckets.ErrUnfit); {
		case unfit && !reported:
			s.raiseAbout(subjects.AlarmBucketUnfit, "worker numbers", err.Error()+
				"; the worker numbers are not renewed until then, and snowflakes end with the present window")
			reported = true
		case err == nil && reported:
			s.cfg.Log.Info("the bucket of the worker numbers is in order again")
			reported = false
		}
	}
}

func (s *storage) checkRegistry(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return s.registry.Check(ctx)
}

// loadRequests is how many requests a load of an existing tag needs at most: to check the marks, to read one, and to
// raise it. maxLoad bounds a load in any case, to the time that it takes if JetStream is a second away: a load waits
// for a lost answer that long.
const (
	loadRequests = 6
	maxLoad      = 8 * time.Second
)

// enoughToLoad returns the time limit of a load.
func (s *storage) enoughToLoad(least time.Duration) time.Duration {
	if s.marks == nil {
		return least
	}
	return min(s.marks.Own().Enough(loadRequests, least), max(least, maxLoad))
}

// openTimeout bounds each attempt to open the buckets: a cluster without a leader leaves requests unanswered.
const openTimeout = 3 * time.Second

// open opens the buckets.
func (s *storage) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	var mismatches [2]string
	var marksErr, registryErr error
	if s.marks != nil {
		mismatches[0], marksErr = s.marks.Open(ctx)
	} else {
		marksErr = s.checkKind(ctx)
	}
	mismatches[1], registryErr = s.registry.Open(ctx)
	if err := errors.Join(marksErr, registryErr); err != nil {
		return err
	}
	for _, m := range mismatches {
		if m != "" {
			s.cfg.Log.Warn("an existing bucket differs from the settings and is used as it is", "difference", m)
		}
	}
	return nil
}

// checkKind refuses to serve an unguarded table beside workers whose marks are the store. A user without the right to
// read the marks gets no answer, and is not refused.
func (s *storage) checkKind(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return kvstore.CheckKind(ctx, s.streams, s.cfg.Namespace.SegmentBucket(), s.kind())
}

// openLate opens the buckets that could not be opened at the start, whether or not requests arrive. It returns when
// they are open or ctx ends.
func (s *storage) openLate(ctx context.Context) error {
	if !s.openedLate {
		return nil
	}
	_, err := retry(ctx, s.cfg.Log, "the buckets in JetStream are not open yet", func() (struct{}, error) {
		return struct{}{}, s.open(ctx)
	})
	if err == nil {
		s.cfg.Log.Info("JetStream is ready")
	}
	return nil
}

// openStore opens the store of the tags: the marks alone, or MySQL, guarded by the marks unless --guard is off. It
// waits until the database answers.
func (s *storage) openStore(ctx context.Context) error {
	cfg := s.cfg
	if !cfg.OnMySQL() {
		s.tags = s.marks
		return nil
	}
	login, err := cfg.Database()
	if err != nil {
		return err
	}
	what := "MySQL at " + mysqlstore.Redact(login.DSN) + " does not answer yet"
	table, err := retry(ctx, cfg.Log, what, func() (*mysqlstore.Table, error) { return openTable(ctx, login) })
	if err != nil {
		return err
	}
	s.table = table
	if s.links.embedded != nil {
		cfg.Log.Warn("the marks that guard MySQL, and the worker numbers, are in the embedded NATS server, which no " +
			"other machine shares; join all workers of one database to one NATS with --nats")
	}
	if !cfg.Guard {
		s.tags = guard.New(table, nil, nil)
		return nil
	}
	s.tags = guard.New(table, s.marks, &guard.Config{Wrote: s.wrote, Alarm: func(tag, message string) {
		s.raiseAbout(subjects.AlarmTableWentBack, tag, "tag "+tag+": "+message)
	}})
	return nil
}

func (s *storage) closeStore() error {
	if s.table != nil {
		s.table.Close()
	}
	return nil
}

// creates reports whether --auto-create-tags, if it is on, covers a tag.
func (p *program) creates(tag string) bool {
	if p.cfg.AutoCreatePattern == "" {
		return true
	}
	ok, err := path.Match(p.cfg.AutoCreatePattern, tag)
	return ok && err == nil
}

// created announces a tag that was created on first use. A worker that misses the announcement finds the tag at its
// first request.
func (p *program) created(tag string) {
	if err := p.links.control.Publish(p.cfg.Namespace.TagChanged(), []byte(tag)); err != nil {
		p.cfg.Log.Debug("a new tag was not announced to the other workers", "tag", tag, "error", err)
	}
}
