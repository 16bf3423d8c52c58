package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/workerid"
)

// A grantLog writes grants to a stream: which IDs this process may issue. IDs are issued even if a write fails.
type grantLog struct {
	*program
	log     *grants.Log // nil before open and with --grants off: then it drops grants
	failing time.Time   // time of the first of the writes that failed in a row; zero if the last succeeded
}

// grantsSize bounds the stream of grants, in bytes: JetStream removes the oldest. `nats stream edit` changes the bound.
const grantsSize = 256 << 20

// open makes the log of grants. The bucket of the log is created with the first entry.
func (g *grantLog) open() {
	cfg := g.cfg
	if cfg.Grants == 0 {
		return
	}
	bucket := buckets.New(g.storage.streams, buckets.Config{
		Name: wire.GrantsBucket(cfg.Namespace), Description: "natsid: which worker was given which IDs",
		TTL: cfg.Grants, MaxBytes: grantsSize, Whole: true, Replicas: g.storage.replicas(), Log: cfg.Log,
	})
	g.log = &grants.Log{Who: g.who, Write: func(ctx context.Context, body []byte) error {
		_, err := bucket.Put(ctx, grants.Key, body)
		g.report(err)
		return err
	}}
}

// run writes grants until ctx ends, and then those that still wait.
func (g *grantLog) run(ctx context.Context) {
	if g.log != nil {
		g.log.Run(ctx, func() time.Duration { return g.links.atStop(1500 * time.Millisecond) })
	}
}

func (g *grantLog) who() grants.Who {
	s, d := g.keeper.Status(), workerid.DeploymentOf(g.cfg.Layout)
	return grants.Who{Instance: s.Instance, Process: g.keeper.Who().Process, Registry: s.Registry,
		Layout: d.Layout, Epoch: d.Epoch, Unit: d.Unit}
}

// report raises an alarm if a write was refused, or if all writes of the last minute have failed.
func (g *grantLog) report(err error) {
	if err == nil {
		g.failing = time.Time{}
		return
	}
	g.failing = cmp.Or(g.failing, time.Now())
	isRefused := errors.Is(err, buckets.ErrUnfit) || errors.Is(err, buckets.ErrFull) || isA[*buckets.RightError](err)
	if isRefused || time.Since(g.failing) > time.Minute {
		g.alarms.raise(wire.AlarmGrantsLost, fmt.Sprintf(
			"grants are not written, and the next 100,000 kept in memory: %v", err))
	}
}
