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
	bucket     *buckets.Bucket
	owner      string    // the registry that owns the bucket
	looked     time.Time // time of the last check of the bucket's settings
	isFailing  bool      // an entry could not be written, and this was reported
	lost       uint64    // lost grants reported so far
	wasDeleted bool      // the bucket was deleted, and this was not reported
}

// open creates the log of the loads and of the keeper's windows.
func (g *grantLog) open(keeper *workerid.Keeper) {
	if g.keeper = keeper; g.storage.cfg.Grants == 0 {
		return
	}
	links := g.storage.links
	g.log = grants.New(grants.Config{
		Put: g.put, Head: g.head, Failed: g.failed,
		Limit: func() int { return min(256<<10, int(links.control.MaxPayload())/2) },
		Late:  func() time.Duration { return links.atStop(1500 * time.Millisecond) },
	})
}

// load adds a load.
func (g *grantLog) load(tag string, l segment.Loaded) {
	if g.log == nil {
		return
	}
	number := -1
	if s := g.keeper.Status(); s.Held {
		number = s.Number
	}
	g.log.Load(grants.Load{
		Era: g.era(),
		Tag: tag, First: l.Start, Last: l.End - 1, Number: number, Before: l.Write.Before, Read: l.Write.Read,
		Written: l.Write.Written, Replaced: milliseconds(l.Write.Replaced), Time: time.Now().UnixMilli(),
	})
}

// wrote adds a write of a mark that granted nothing.
func (g *grantLog) wrote(tag string, w segment.Write) {
	if g.log != nil {
		written := WriteOf(tag, w)
		written.Era = g.era()
		g.log.Write(written)
	}
}

// era returns the era in which this worker writes marks.
func (g *grantLog) era() string { return g.storage.membership.eras().Era }

// WriteOf returns the record of a write of a tag's mark that is made now.
func WriteOf(tag string, w segment.Write) grants.Write {
	return grants.Write{
		Tag: tag, How: string(w.How), Before: w.Before, After: w.After, Read: w.Read, Written: w.Written,
		Replaced: milliseconds(w.Replaced), Time: time.Now().UnixMilli(),
	}
}

// milliseconds returns a time as Unix ms, 0 for the zero time.
func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// discarded adds IDs of a load that were never issued.
func (g *grantLog) discarded(tag string, r segment.Range) {
	if g.log != nil {
		g.log.Discard(grants.Discard{Tag: tag, First: r.Start, Last: r.End - 1, Time: time.Now().UnixMilli()})
	}
}

// last returns the last loads of a tag by this process.
func (g *grantLog) last(tag string) (all []subjects.GrantView) {
	if g.log == nil {
		return nil
	}
	for _, l := range g.log.Last(tag) {
		all = append(all, subjects.GrantView{
			First: subjects.Decimal(l.First), Last: subjects.Decimal(l.Last), Time: time.UnixMilli(l.Time).UTC(),
		})
	}
	return all
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

// head returns the head of entries, once the registry of the worker numbers is known.
func (g *grantLog) head() (grants.Head, bool) {
	who, _ := g.keeper.Who()
	h := grants.Head{Instance: who.Instance, Process: who.Process, Numbers: who.Registry,
		Layout: who.Layout, Epoch: who.Epoch, Unit: who.Unit}
	h.Store = "bucket " + g.storage.cfg.Namespace.SegmentBucket()
	if g.storage.cfg.OnMySQL() {
		h.Store = "MySQL, guarded by " + h.Store
	}
	h.Segments, h.Era = g.storage.membership.identity().Registry, g.era()
	return h, h.Numbers != ""
}

// lookEvery is the interval of checks whether the bucket is still this registry's.
const lookEvery = time.Minute

// grantsSize is the size at which the stream forgets the oldest: 20 million loads of a few busy tags, or a million of
// many quiet ones. `nats stream edit` changes it.
const grantsSize = 256 << 20

// put writes an entry. The bucket is created for the first one.
func (g *grantLog) put(ctx context.Context, body []byte) error {
	cfg, owner := g.storage.cfg, g.keeper.Status().Registry
	if g.bucket == nil || g.owner != owner {
		g.owner, g.looked = owner, time.Time{}
		g.bucket = buckets.New(g.storage.streams, buckets.Config{
			Name: cfg.Namespace.GrantsBucket(), Description: "natsid: which worker was given which IDs",
			TTL: cfg.Grants, MaxBytes: grantsSize, Whole: true, Owner: owner,
			Replicas: g.storage.replicas(), Lost: func() { g.wasDeleted = true }, Log: cfg.Log,
		})
	}
	if time.Since(g.looked) > lookEvery {
		if _, err := g.bucket.Look(ctx); err != nil {
			return err
		}
		g.looked = time.Now()
	}
	_, err := g.bucket.Put(ctx, grants.Key, body)
	if err != nil {
		g.looked = time.Time{}
	}
	return err
}

// failed reports the gaps of provenance. While JetStream is out of reach, no grant is lost yet.
func (g *grantLog) failed(err error, lost uint64) {
	raise := func(about, format string, args ...any) {
		g.raiseAbout(subjects.AlarmGrantsLost, about, fmt.Sprintf(format, args...))
	}
	if g.wasDeleted {
		g.wasDeleted = false
		raise("gone", "the stream of bucket %s was deleted, or JetStream wiped: earlier records are lost; "+
			"another one is made", g.storage.cfg.Namespace.GrantsBucket())
	}
	if err != nil && lost == g.lost { // other parts log that JetStream is out of reach
		g.storage.cfg.Log.Debug("grants cannot be written now, and wait in memory; IDs are issued as usual",
			"error", err)
	}
	_, right := errors.AsType[*buckets.RightError](err)
	refused := errors.Is(err, buckets.ErrUnfit) || errors.Is(err, buckets.ErrFull) || right
	if refused && !g.isFailing {
		raise("refused", "grants are not written, and kept in memory for a while: %v", err)
		g.isFailing = true
	}
	if lost > g.lost {
		raise("lost", "%d grants are lost since the start of this worker, as entries could not be written for too long",
			lost)
		g.lost = lost
	}
	if err == nil && g.isFailing {
		g.storage.cfg.Log.Info("grants are written again")
		g.isFailing = false
	}
}
