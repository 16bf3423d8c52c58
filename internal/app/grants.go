package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/ops/grants"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

// A grantLog records the IDs that this process may issue. No ID depends on it: whether or not it works, IDs are
// issued. It records nothing before open.
type grantLog struct {
	storage    *storage
	raiseAbout func(kind subjects.Alarm, about, message string) // see alarms
	keeper     *workerid.Keeper                                 // set by open
	log        *grants.Log                                      // nil with --grants off

	// Only the goroutine of run uses these.
	bucket    *buckets.Bucket
	owner     string // the registry that owns the bucket
	isFailing bool   // an entry could not be written, and this was reported
	lost      uint64 // reported so far
}

// open creates the log of the loads and of the keeper's windows.
func (g *grantLog) open(keeper *workerid.Keeper) {
	if g.keeper = keeper; g.storage.cfg.Grants == 0 {
		return
	}
	links := g.storage.links
	g.log = grants.New(grants.Config{
		Put: g.put, Who: g.who, Wrote: g.wrote,
		Limit: func() int { return min(256<<10, int(links.control.MaxPayload())/2) },
		Late:  func() time.Duration { return links.atStop(1500 * time.Millisecond) },
	})
}

// load adds a load.
func (g *grantLog) load(tag string, l segment.Loaded) {
	if g.log == nil {
		return
	}
	load := grants.Load{First: l.Start, Last: l.End - 1, Time: time.Now().UnixMilli(), Strict: l.Rules.Strict}
	if l.Replaced < l.Start {
		load.Above = l.Replaced
	}
	g.log.Load(tag, l.Era, load)
}

// raised adds a write that raised a mark.
func (g *grantLog) raised(tag string, from, to int64) {
	if g.log != nil {
		g.log.Raise(tag, grants.Span{from, to})
	}
}

// window adds a window.
func (g *grantLog) window(w workerid.Window) {
	if g.log != nil {
		g.log.Window(grants.Window{
			Number: w.Number, From: w.From, Until: w.Until, How: string(w.How), Time: time.Now().UnixMilli(),
		})
	}
}

// run writes until ctx ends, and then the remaining grants.
func (g *grantLog) run(ctx context.Context) error {
	if g.log == nil {
		return nil
	}
	return g.log.Run(ctx)
}

// who returns the writer of entries, once the registry of the worker numbers is known.
func (g *grantLog) who() (grants.Who, bool) {
	who, _ := g.keeper.Who()
	return grants.Who{Instance: who.Instance, Process: who.Process, Registry: who.Registry,
		Layout: who.Layout, Epoch: who.Epoch, Unit: who.Unit}, who.Registry != ""
}

// grantsSize is the size at which the stream forgets the oldest. `nats stream edit` changes it.
const grantsSize = 256 << 20

// put writes an entry. The bucket is created for the first one.
func (g *grantLog) put(ctx context.Context, entry []byte) error {
	cfg, owner := g.storage.cfg, g.keeper.Status().Registry
	if g.bucket == nil || g.owner != owner {
		g.owner = owner
		g.bucket = buckets.New(g.storage.streams, buckets.Config{
			Name: cfg.Namespace.GrantsBucket(), Description: "natsid: which worker was given which IDs",
			TTL: cfg.Grants, MaxBytes: grantsSize, Whole: true, Owner: owner,
			Replicas: g.storage.replicas(), Log: cfg.Log, Lost: func() {
				g.raiseAbout(subjects.AlarmGrantsLost, "gone", fmt.Sprintf("the stream of bucket %s was deleted, or "+
					"JetStream wiped: earlier records are lost; another one is made", cfg.Namespace.GrantsBucket()))
			},
		})
	}
	_, err := g.bucket.Put(ctx, grants.Key, entry)
	return err
}

// wrote reports the gaps of provenance. While JetStream is out of reach, nothing is lost yet.
func (g *grantLog) wrote(err error, lost uint64) {
	raise := func(about, format string, args ...any) {
		g.raiseAbout(subjects.AlarmGrantsLost, about, fmt.Sprintf(format, args...))
	}
	_, right := errors.AsType[*buckets.RightError](err)
	refused := errors.Is(err, buckets.ErrUnfit) || errors.Is(err, buckets.ErrFull) || right
	if refused && !g.isFailing {
		raise("refused", "grants are not written, and kept in memory for a while: %v", err)
	}
	if lost > g.lost {
		raise("lost", "%d grants are lost since the start of this worker, as entries could not be written for too long",
			lost)
		g.lost = lost
	}
	if err == nil && g.isFailing {
		g.storage.cfg.Log.Info("grants are written again")
	}
	g.isFailing = refused || g.isFailing && err != nil
}
