package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/workerid"
)

// A grantLog records the IDs that this process may issue. No ID depends on it: whether or not it works, IDs are
// issued. It records nothing before open.
type grantLog struct {
	storage *storage
	raise   func(message string) // an alarm
	keeper  *workerid.Keeper     // set by open
	bucket  *buckets.Bucket      // likewise
	log     *grants.Log          // nil with --grants off
	failing time.Time            // since when entries cannot be written, for run; zero if they can
}

// grantsSize is the size at which the stream forgets the oldest. `nats stream edit` changes it.
const grantsSize = 256 << 20

// open creates the log of the loads and of the keeper's windows. The bucket is made for the first entry.
func (g *grantLog) open(keeper *workerid.Keeper) {
	cfg := g.storage.cfg
	if g.keeper = keeper; cfg.Grants == 0 {
		return
	}
	g.bucket = buckets.New(g.storage.streams, buckets.Config{
		Name: wire.GrantsBucket(cfg.Namespace), Description: "natsid: which worker was given which IDs",
		TTL: cfg.Grants, MaxBytes: grantsSize, Whole: true, Replicas: g.storage.replicas(), Log: cfg.Log,
	})
	g.log = grants.New(g.put, func() int { return min(256<<10, int(g.storage.links.control.MaxPayload())/2) })
}

// load adds a load.
func (g *grantLog) load(tag string, l segment.Loaded) {
	load := grants.Load{First: l.Start, Last: l.End - 1}
	if l.Replaced < l.Start {
		load.Above = l.Replaced
	}
	g.log.Load(tag, load)
}

// raised adds a write that raised a mark.
func (g *grantLog) raised(tag string, from, to int64) {
	g.log.Load(tag, grants.Raise(from, to))
}

// window adds a window.
func (g *grantLog) window(w workerid.Window) {
	g.log.Window(grants.Window{Number: w.Number, From: w.From, Until: w.Until, How: string(w.How)})
}

// run writes until ctx ends, and then the remaining grants.
func (g *grantLog) run(ctx context.Context) error {
	if g.log != nil {
		g.log.Run(ctx, func() time.Duration { return g.storage.links.atStop(1500 * time.Millisecond) })
	}
	return nil
}

// put writes an entry.
func (g *grantLog) put(ctx context.Context, e *grants.Entry) error {
	who, _ := g.keeper.Who()
	e.Who = grants.Who{Instance: who.Instance, Process: who.Process, Registry: who.Registry,
		Layout: who.Layout, Epoch: who.Epoch, Unit: who.Unit}
	body, err := json.Marshal(e)
	if err == nil {
		_, err = g.bucket.Put(ctx, grants.Key, body)
	}
	g.report(err)
	return err
}

// report raises an alarm while entries are refused, or cannot be written for a minute.
func (g *grantLog) report(err error) {
	switch {
	case err == nil:
		g.failing = time.Time{}
		return
	case g.failing.IsZero():
		g.failing = time.Now()
	}
	_, right := errors.AsType[*buckets.RightError](err)
	isRefused := errors.Is(err, buckets.ErrUnfit) || errors.Is(err, buckets.ErrFull) || right
	if isRefused || time.Since(g.failing) > time.Minute {
		g.raise(fmt.Sprintf("grants are not written, and the next 8 MB kept in memory: %v", err))
	}
}
