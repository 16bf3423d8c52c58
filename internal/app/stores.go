package app

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/segment/guard"
	"github.com/natsid/natsid/segment/kvstore"
	"github.com/natsid/natsid/segment/mysqlstore"
	"github.com/natsid/natsid/subjects"
)

// openBuckets tries once to open what is kept in JetStream. Without JetStream
// the rest starts all the same, and [program.openLate] continues.
func (p *program) openBuckets(ctx context.Context) (err error) {
	cfg, ns := p.cfg, p.cfg.Namespace
	if p.js, err = jetstream.New(p.links.control); err != nil {
		return err
	}
	n := replicas(cfg, p.links.control)
	p.registry = kvregistry.New(p.js, kvregistry.Config{
		History: ns.HistoryBucket(), Workers: ns.WorkerBucket(), LeaseTTL: cfg.LeaseTTL, Replicas: n, WorkerSubject: ns.Worker,
	})
	if cfg.MySQL == "" || cfg.Guard {
		p.marks = kvstore.New(p.js, ns.SegmentBucket(), n, p.marksLost)
	}
	err = p.open(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil || errors.Is(err, buckets.ErrForgets) {
		return err
	}
	cfg.Log.Warn("JetStream is not ready; until it is, ranges cannot be loaded, so segment requests are answered 503; snowflakes come from what is left of the window in the state file, if there is any", "error", err)
	p.late = true
	return nil
}

// marksLost tells operators that JetStream lost the marks.
func (p *program) marksLost() {
	what := "the marks in bucket " + p.cfg.Namespace.SegmentBucket() + " are gone: was JetStream wiped, or the bucket deleted? "
	if p.cfg.MySQL == "" {
		what += "What is loaded is still handed out; then tags are 404 until each is made again, with a start above all IDs that any worker has loaded"
	} else {
		what += "They are made again from MySQL"
	}
	p.alarm(subjects.AlarmStoreWentBack, what)
}

// open opens the buckets, and says what operators should know of them once all
// are open. It gives up after a while: a cluster without a leader leaves
// requests unanswered.
func (p *program) open(ctx context.Context) error {
	const long = 3 * time.Second
	opening, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	var differs [2]string
	var err, rerr error
	if p.marks != nil {
		differs[0], err = p.marks.Open(opening)
	}
	differs[1], rerr = p.registry.Open(opening)
	if err = errors.Join(err, rerr); err != nil {
		return err
	}
	for _, d := range differs {
		if d != "" {
			p.cfg.Log.Warn("an existing bucket is used as it is", "difference", d)
		}
	}
	warning, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	warnOfStreams(warning, p.js, p.cfg)
	return nil
}

// openLate opens the buckets that could not be opened at the start, whether
// anybody asks for IDs or not. It returns when they are open or ctx ends.
func (p *program) openLate(ctx context.Context) error {
	if !p.late {
		return nil
	}
	_, err := retry(ctx, p.cfg.Log, "the buckets in JetStream are not open yet", func() (struct{}, error) {
		return struct{}{}, p.open(ctx)
	})
	if err == nil {
		p.cfg.Log.Info("JetStream is ready")
	}
	return nil
}

// openStore opens the store of the tags: the marks by themselves, or MySQL
// guarded by them. It waits for the database as long as that is not there.
func (p *program) openStore(ctx context.Context) (err error) {
	cfg := p.cfg
	if cfg.MySQL == "" {
		p.store = p.marks
		return nil
	}
	p.table, err = retry(ctx, cfg.Log, "MySQL at "+mysqlstore.Redact(cfg.MySQL)+" is not there yet", func() (*mysqlstore.Table, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		t, err := mysqlstore.Open(ctx, cfg.MySQL)
		if errors.Is(err, mysqlstore.ErrRefused) {
			err = backoff.Permanent(fmt.Errorf("cannot use MySQL at %s: %w", mysqlstore.Redact(cfg.MySQL), err))
		}
		return t, err
	})
	if err != nil {
		return err
	}
	if p.where.Embedded {
		cfg.Log.Warn("with the own nats-server the marks that guard MySQL, and the worker numbers, are this machine's alone; give all workers of one database one NATS with --nats")
	}
	if !cfg.Guard {
		p.store = guard.New(p.table, nil, nil)
		return nil
	}
	p.store = guard.New(p.table, p.marks, func(tag, message string) {
		p.alarm(subjects.AlarmStoreWentBack, "tag "+tag+": "+message)
	})
	return nil
}

func (p *program) closeStore() error {
	if p.table != nil {
		p.table.Close()
	}
	return nil
}

// creates reports whether a tag is made on first use, where that is done at all.
func (p *program) creates(tag string) bool {
	if p.cfg.AutoCreatePattern == "" {
		return true
	}
	ok, err := path.Match(p.cfg.AutoCreatePattern, tag)
	return ok && err == nil
}

// created tells the other workers of a tag that was made on first use. One that
// misses it finds the tag when it is asked for it.
func (p *program) created(tag string) {
	if err := p.links.control.Publish(p.cfg.Namespace.TagChanged(), []byte(tag)); err != nil {
		p.cfg.Log.Debug("a new tag was not told to the other workers", "tag", tag, "error", err)
	}
}
