package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/durable"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/worker"
)

// storage has the durable state: the buckets in JetStream, and, with --mysql, a table of tags. Each tag has a mark, its
// next ID, in the bucket of tags. With a table, the marks keep IDs unique even if the table lost its last commits.
type storage struct {
	*program

	js      jetstream.JetStream
	streams buckets.Streams
	numbers *kvregistry.Registry
	tags    *kvstore.Store
	late    error             // why the buckets could not be opened at the start; nil if they could
	table   *mysqlstore.Table // nil without MySQL
}

// assemble makes the stores. It opens no bucket.
func (s *storage) assemble() (err error) {
	cfg, ns, m := s.cfg, s.cfg.Namespace, &s.registry
	if s.js, err = buckets.Connect(s.links.control, cfg.JSDomain, cfg.JSPrefix); err != nil {
		return err
	}
	s.streams = buckets.OnJetStream(s.js)
	s.grants.open()
	n := s.replicas()
	s.numbers = kvregistry.New(s.js, kvregistry.Config{
		History: wire.HistoryBucket(ns), Workers: wire.WorkerBucket(ns),
		Replicas: n, Single: s.links.embedded != nil, Log: cfg.Log,
		WorkerSubject: func(w int) string { return wire.Worker(ns, w) },
	})
	store := kvstore.Config{
		Bucket: wire.SegmentBucket(ns), Replicas: n, MayFound: m.mayFound, Clock: s.clock, Log: cfg.Log,
		Lost:     func() { m.member.Doubt() },
		WentBack: func(why string, need int64) { m.member.WentBack(why, need) },
		Eras:     func() era.Identity { return m.member.Eras() },
		Process:  func() string { return s.keeper.Who().Process },
		Raised:   s.grants.log.Raise,
		RowWentBack: func(tag, message string) {
			s.alarms.raiseAbout(wire.AlarmTableWentBack, tag, "tag "+tag+": "+message)
		},
	}
	if s.table != nil {
		store.Table = s.table
	}
	s.tags = kvstore.New(s.streams, store)
	return nil
}

// reconnects returns how often the connection to the buckets was made again.
func (s *storage) reconnects() uint64 { return s.links.control.Stats().Reconnects }

// openBuckets tries once to open the buckets in JetStream. If JetStream does not answer, the program still starts, and
// [storage.openLate] tries again. Until then requests for segments get 503. Snowflakes are issued only by a worker that
// was killed: it goes on until the end of its window, the time span in which it owns its worker number.
func (s *storage) openBuckets(ctx context.Context) error {
	err := s.open(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil || isFinal(err) {
		return err
	}
	s.cfg.Log.Warn("JetStream is not ready: no ranges can be loaded, so requests for segment IDs are answered 503; "+
		"snowflakes are issued only in the rest of the window in the state file, if there is one; "+
		"trying again until JetStream is ready", "error", err)
	s.late = err
	s.reasons.Clear(worker.Unchecked, stoppable...)
	return nil
}

// replicas returns the number of replicas for a bucket that this worker creates. 0 means 3, or 1 if JetStream has fewer
// servers.
func (s *storage) replicas() int {
	if s.links.embedded != nil {
		return max(1, s.cfg.Replicas)
	}
	return s.cfg.Replicas
}

// measureEvery is how often JetStream's round trip is measured while JetStream leaves requests unanswered.
const measureEvery = time.Second

// watch checks the settings of the bucket of worker numbers every --tag-poll, and raises an alarm while natsid must not
// rely on them. It does not check the bucket of marks, since the poll of the tags does that.
func (s *storage) watch(ctx context.Context) {
	tick, measure := time.NewTicker(s.cfg.TagPoll), time.NewTicker(measureEvery)
	defer tick.Stop()
	defer measure.Stop()
	for {
		select {
		case <-measure.C:
			s.tags.Own().Measure(ctx)
		case <-tick.C:
			attempt, cancel := context.WithTimeout(ctx, openTimeout)
			if err := s.numbers.Check(attempt); errors.Is(err, buckets.ErrUnfit) {
				s.alarms.raiseAbout(wire.AlarmBucketUnfit, "worker numbers", err.Error()+
					"; the worker numbers are not renewed until then, and snowflakes end with the present window")
			}
			cancel()
		case <-ctx.Done():
			return
		}
	}
}

// openTimeout bounds an attempt to open the buckets, since a cluster without a leader never answers.
const openTimeout = 3 * time.Second

// open opens the buckets, and logs how their settings differ from those that natsid gives to new buckets.
func (s *storage) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := errors.Join(s.tags.Own().Open(ctx), s.numbers.Open(ctx)); err != nil {
		return err
	}
	return s.registry.member.Fits(ctx)
}

// isFinal reports whether the buckets cannot be opened until an operator changes something.
func isFinal(err error) bool {
	return errors.Is(err, era.ErrKind) || errors.Is(err, buckets.ErrUnfit) || errors.Is(err, era.ErrNewer)
}

// openLate opens the buckets if the start could not open them. It returns when they are open, or when ctx ends.
func (s *storage) openLate(ctx context.Context) {
	if s.late == nil {
		return
	}
	_, err := retry(ctx, s.cfg.Log, "the buckets in JetStream are not open yet", func() (struct{}, error) {
		return struct{}{}, s.open(ctx)
	})
	if err == nil {
		s.cfg.Log.Info("JetStream is ready")
	}
}

// openTable opens the table of tags, if --mysql is given. It waits until the database answers.
func (s *storage) openTable(ctx context.Context) error {
	cfg := &s.cfg
	if !cfg.OnMySQL() {
		return nil
	}
	login, err := cfg.Database()
	if err != nil {
		return err
	}
	what := "MySQL at " + mysqlstore.Redact(login.DSN) + " does not answer yet"
	s.table, err = retry(ctx, cfg.Log, what, func() (*mysqlstore.Table, error) {
		t, err := OpenTable(ctx, login)
		if errors.Is(err, mysqlstore.ErrRefused) {
			err = backoff.Permanent(err)
		}
		return t, err
	})
	if err == nil && s.links.embedded != nil {
		cfg.Log.Warn("the marks that guard MySQL, and the worker numbers, are in the embedded NATS server, which no " +
			"other machine shares; join all workers of one database to one NATS with --nats")
	}
	return err
}

func (s *storage) closeTable() {
	if s.table != nil {
		s.table.Close()
	}
}

var _ lineage.Tags = (*kvstore.Store)(nil)

// isUnused reports whether the registry has never had a tag or a worker number.
func (s *storage) isUnused(ctx context.Context) (bool, error) {
	tags, err := s.tags.List(ctx, "", 1)
	if err != nil || len(tags) > 0 {
		return false, err
	}
	return s.numbers.Unused(ctx)
}

// lockData creates the data directory and keeps other processes out of it.
func (p *program) lockData(context.Context) (err error) {
	if p.cfg.Data == "" {
		return nil
	}
	if p.unlock, err = durable.Lock(p.cfg.Data); errors.Is(err, durable.ErrInUse) {
		return fmt.Errorf("%w: another natsid runs in %s, or has ended and its disk hangs; stop it, "+
			"or give this one a directory of its own with --data DIR", ErrDataInUse, p.cfg.Data)
	}
	if err != nil {
		return fmt.Errorf("cannot create or lock the data directory: %w; make it writable, or choose another with "+
			"--data DIR (with --nats, --data '' keeps no local state)", err)
	}
	return nil
}
