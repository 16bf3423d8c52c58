// Package buckets opens the JetStream KV buckets that hold natsid's durable state, and creates missing ones.
//
// A [Bucket] uses JetStream through [Streams], of which tests have a fake. The KV interfaces of NATS clients and
// `nats kv` read and write the same buckets. Uniqueness rests on two things that these interfaces do not offer:
//
//   - FirstSeq: the revisions of a new bucket begin at the present Unix time in microseconds, and above each revision
//     that this process has seen. So a bucket that was deleted and created again repeats no revision. Otherwise a
//     compare-and-set on a revision of the old bucket could succeed. This assumes that the clock is not set back by
//     more than the age of the bucket, and that the bucket has fewer than 10^6 writes/s on average.
//   - No direct gets: the leader of the stream answers each read of a key. Replicas lag: about a tenth of the reads
//     right after a write were stale, and a stale record of a worker number looks like another worker's.
//
// A bucket without TTL is made so that nothing in it can be purged or rolled up. A bucket that exists is used as it is,
// unless its settings can lose entries or let other streams write into it: then calls return [ErrUnfit].
package buckets

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Config describes a bucket.
type Config struct {
	Name        string
	Description string
	TTL         time.Duration // of each value since it was put; 0 keeps it forever
	Replicas    int           // of a bucket that this process creates; 0 means 3 or 1: see [Bucket]
	// Whole keeps all entries of a key until their TTL, not only the last one. A Whole bucket that has reached MaxBytes
	// drops its oldest entries. If JetStream cannot reserve MaxBytes, the bucket is made with an eighth of that, or
	// less.
	Whole    bool
	MaxBytes int64
	// Insist sends a read once more if no answer came soon. It is for a bucket whose reads delay requests of callers.
	Insist bool
	// Tolerant keeps an open bucket in use when its settings become unfit: only Look returns [ErrUnfit], and the
	// owner decides when to stop. Even if Tolerant, a bucket that takes no writes is refused.
	Tolerant bool
	// Existing says that this process may create no bucket and write no first entry. Where the bucket is missing,
	// calls return [ErrNoBucket].
	Existing bool
	// Fleeting says that all values are put again within seconds, so a write may be acknowledged before it is on disk.
	// Alone says that JetStream is a single server.
	Fleeting, Alone bool
	// Lost, if set, is called when a call finds that the open bucket no longer exists: the bucket was deleted, or
	// JetStream was wiped. That call creates the bucket again. Lost must not block.
	Lost func()
	// First, if set, returns the first entry of a bucket that was made at the time created. A process that opens a
	// bucket into which nothing was ever written writes that entry first, even if an operator made the bucket. A
	// bucket that replaces another one of the same name gets no first entry.
	First func(created time.Time) (key string, value []byte)
	// MayFound, if set, decides whether the bucket may be the first of its name. It is called before this process
	// creates the bucket, unless the process has opened a bucket of the name before, and before it writes the first
	// entry. If MayFound returns [ErrInUse], the bucket is created without a first entry; after any other error the
	// bucket is not opened.
	MayFound func(context.Context) error
	Log      *slog.Logger // nil discards
	// WentBack, if set, is called when an acknowledged write was given a revision that is not above all revisions known
	// before: the bucket was set back to an earlier state. WentBack is called before the write returns, and must not
	// block.
	WentBack func(why string)
}

// A Bucket is a JetStream KV bucket that is opened when it is first needed, since JetStream may be unavailable for
// long. Each call tries to open a bucket that is not open; concurrent calls share one attempt. A call creates the
// bucket again if JetStream says that it knows no bucket of the name. A Bucket is safe for concurrent use.
//
// With Replicas 0 a bucket is made with three replicas, or with one if JetStream is a single server, as on a leaf node.
// In a cluster of two servers no bucket is made: a third server may still be starting, and natsid adds no replicas
// later.
type Bucket struct {
	*reader
	cfg Config

	opened  atomic.Pointer[attempt]
	changed atomic.Pointer[error] // what makes the open bucket unfit; nil if nothing
	again   atomic.Bool           // this process has opened a bucket of this name before
	seen    atomic.Uint64         // the highest revision known: see Known

	mu      sync.Mutex
	attempt *attempt // under way, or the one that succeeded; nil if none
	trouble error    // why the bucket is not open; nil if it is
}

// New returns a bucket that is not open yet.
func New(streams Streams, cfg Config) *Bucket {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	b := &Bucket{reader: &reader{streams: streams, bucket: cfg.Name, insists: cfg.Insist}, cfg: cfg}
	b.trouble = b.failed(errors.New("no answer yet"))
	return b
}

// Open opens the bucket unless it is open, and creates it if none exists. An existing bucket is used as it is; how its
// replicas and TTL differ from the [Config] is logged. Open returns [ErrUnfit] for a bucket that cannot be relied on.
// It returns by the time ctx ends.
func (b *Bucket) Open(ctx context.Context) error {
	_, err := b.get(ctx)
	return err
}

// Trouble returns why the bucket is not open or not fit, or nil if it is both.
func (b *Bucket) Trouble() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trouble != nil {
		return b.trouble
	}
	return b.unfit()
}

// Look opens the bucket if necessary, and reads its present settings. If they are unfit, Look returns [ErrUnfit], and
// all other calls do so, too, until a Look finds the settings corrected, unless the bucket is Tolerant.
func (b *Bucket) Look(ctx context.Context) (Info, error) {
	for range 2 {
		a, err := b.get(ctx)
		if err != nil {
			return Info{}, err
		}
		info, err := b.streams.Info(ctx, b.bucket)
		if err == nil {
			return info, b.note(info)
		}
		if !errors.Is(err, ErrNoBucket) {
			return Info{}, err
		}
		b.forget(a, err)
	}
	return Info{}, b.failed(ErrNoBucket)
}

// Time returns the clock of the server that leads the bucket's stream. That server dates the entries.
func (b *Bucket) Time(ctx context.Context) (time.Time, error) {
	return on(ctx, b, func() (time.Time, error) {
		i, err := timed(&b.latency, func() (Info, error) { return b.streams.Info(ctx, b.bucket) })
		if err == nil && i.Now.IsZero() {
			err = errors.New("buckets: nats-server does not tell its time; run 2.10 or later")
		}
		return i.Now, err
	})
}

// Measure sends a request, with a timeout of 3 s, if the last request timed out: so Enough learns how slowly
// JetStream answers now.
func (b *Bucket) Measure(ctx context.Context) {
	b.latency.mu.Lock()
	unanswered := b.latency.unanswered
	b.latency.mu.Unlock()
	if !unanswered {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	_, _ = b.Time(ctx) // the time that it took is noted
}
