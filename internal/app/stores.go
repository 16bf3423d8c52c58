package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/kvregistry"
	"github.com/natsid/natsid/mysqlstore"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/kvstore"
)

// buckets opens the buckets, waiting for JetStream as long as it is not ready.
func (p *program) buckets(ctx context.Context) (marks *kvstore.Store, registry *kvregistry.Registry, err error) {
	cfg, ns := p.cfg, p.cfg.Namespace
	js, err := jetstream.New(p.links.control)
	if err != nil {
		return nil, nil, err
	}
	_, err = retry(ctx, cfg.Log, "JetStream is not ready yet", func() (_ struct{}, err error) {
		// Short: a cluster without a leader leaves requests unanswered.
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		n := replicas(cfg, p.links.control)
		var differs [2]string
		marks, differs[0], err = kvstore.Open(ctx, js, ns.SegmentBucket(), n)
		if err == nil {
			registry, differs[1], err = kvregistry.Open(ctx, p.links.control, kvregistry.Config{
				History: ns.HistoryBucket(), Workers: ns.WorkerBucket(), LeaseTTL: cfg.LeaseTTL, Replicas: n, WorkerSubject: ns.Worker,
			})
		}
		if errors.Is(err, buckets.ErrForgets) {
			err = backoff.Permanent(err)
		}
		for _, d := range differs {
			if d != "" {
				cfg.Log.Warn("an existing bucket is used as it is", "difference", d)
			}
		}
		return struct{}{}, err
	})
	if err == nil {
		warnOfStreams(ctx, js, cfg)
	}
	return marks, registry, err
}

// store returns the store of the tags: the marks by themselves, or MySQL
// guarded by them. It waits for the database as long as that is not there.
func (p *program) store(ctx context.Context, marks *kvstore.Store) (segment.Store, error) {
	cfg := p.cfg
	if cfg.MySQL == "" {
		return marks, nil
	}
	var err error
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
		return nil, err
	}
	if p.where.Embedded {
		cfg.Log.Warn("with the own nats-server the marks that guard MySQL, and the worker numbers, are this machine's alone; give all workers of one database one NATS with --nats")
	}
	if !cfg.Guard {
		return segment.NewGuard(p.table, nil, nil), nil
	}
	p.guard = segment.NewGuard(p.table, marks, func(tag, message string) {
		p.alarm("store-went-back", "tag "+tag+": "+message)
	})
	return p.guard, nil
}

func (p *program) close() {
	if p.table != nil {
		p.table.Close()
	}
}

// pollEvery is how often the marks catch up with what others took from the
// table: as often as Leaf looks at it.
const pollEvery = time.Minute

// poll lets the guard catch up until ctx ends.
func (p *program) poll(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		polling, cancel := context.WithTimeout(ctx, pollEvery)
		err := p.guard.Poll(polling)
		cancel()
		if err != nil && ctx.Err() == nil {
			p.cfg.Log.Warn("the marks could not catch up with MySQL; trying again in a minute", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// alarm tells operators of an event that needs a look: in the log, and as a
// message for whoever listens on NATS.
func (p *program) alarm(kind, message string) {
	p.cfg.Log.Error("alarm", "kind", kind, "message", message)
	body, err := json.Marshal(map[string]any{
		"kind": kind, "instance": p.keeper.Status().Instance, "message": message, "time": time.Now().UTC(),
	})
	if err == nil {
		err = p.links.control.Publish(p.cfg.Namespace.Alarm(kind), body)
	}
	if err != nil {
		p.cfg.Log.Warn("an alarm was not published", "kind", kind, "error", err)
	}
}
