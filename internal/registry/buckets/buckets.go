// Package buckets opens the JetStream KV buckets that hold natsid's durable state as soon as JetStream is there, and
// creates those that are missing.
//
// A [Bucket] uses JetStream through [Streams], of which tests have a fake. Any client's KV interface and `nats kv` read
// and write the same buckets. Two things that the KV interface does not offer carry the laws of uniqueness:
//
//   - FirstSeq: revisions begin at the present Unix time in microseconds, and above all that this process has seen, so
//     that those of a bucket that was deleted and created again never repeat. A compare-and-set with an old revision
//     would succeed otherwise. This presumes a clock that is not set back by more than the age of the bucket, and fewer
//     than 10^6 writes/s on average.
//   - No direct gets: the leader of the stream answers all reads of a key. Replicas lag: about a tenth of the reads
//     right after a write were stale, and a stale record looks like another worker's.
//
// A bucket that keeps its values for ever is made so that nothing in it can be purged, and no message rolls up others.
// A bucket that exists is used as it is, unless its settings make it forget what it must keep, or take what others
// write: [ErrUnfit].
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
	Replicas    int           // of a bucket that is created; 0 means 3 or 1, see [Bucket]
	// Whole keeps all entries of a key, not only the last; it needs a TTL. A bucket of MaxBytes drops its oldest
	// entries first. Where JetStream has no room for MaxBytes, the bucket is created with an eighth of it, or less.
	Whole    bool
	MaxBytes int64
	// Insist repeats a read after a short silence, since requests of callers wait for it.
	Insist bool
	// Tolerant keeps an open bucket in use after its settings became unfit, so that it forgets entries or takes what
	// others write: Look reports [ErrUnfit], and the owner stops by itself. A bucket that takes no writes is refused
	// even if Tolerant.
	Tolerant bool
	// Existing says that this process makes no bucket: a missing one is [ErrNoBucket]. It writes no First either.
	Existing bool
	// Fleeting says that all values are put again within seconds, so the server may acknowledge a write before it is on
	// disk. Alone says that JetStream is a single server.
	Fleeting, Alone bool
	// Lost, if set, is called when a bucket that was open is gone with all its entries: JetStream was wiped, or the
	// bucket was deleted. The call that finds this creates the bucket again. Lost must not block.
	Lost func()
	// First, if set, returns the first entry of a new bucket, given when the bucket was made. Whoever opens a bucket
	// into which nothing was ever written writes it, before any other call can use the bucket: an operator made the
	// bucket, or a process ended too early. A bucket that replaces another one gets no first entry.
	First func(created time.Time) (key string, value []byte)
	// MayFound, if set, is called before this process creates a bucket, unless it saw one of the name before, and
	// before it writes the first entry. After [ErrInUse] the bucket is created, but not as the first of its name; after
	// another error it is not opened.
	MayFound func(context.Context) error
	Log      *slog.Logger // nil discards
	// WentBack, if set, is called when an acknowledged write shows that the bucket went back: its revision is not above
	// all revisions known before it was sent. WentBack is called before the write returns, and must not block.
	WentBack func(why string)
}

// A Bucket is a JetStream KV bucket that is opened when it is first needed, since JetStream may be away for long. Until
// it is open, each call tries to open it, and fails if that fails; concurrent calls share one attempt. A call that
// finds the bucket gone, so that JetStream knows none by its name, creates it again. Once the bucket is open, a call
// costs one atomic load more. It is safe for concurrent use.
//
// A bucket with Replicas 0 gets three, or one where JetStream is a single server, as on a leaf node. Replicas are not
// added later, and a cluster with too few servers may still be starting. So there no bucket is made.
type Bucket struct {
	*reader
	cfg Config

	opened  atomic.Pointer[attempt]
	changed atomic.Pointer[error] // what makes the open bucket unfit; nil if nothing
	again   atomic.Bool           // this process has opened a bucket of the name before
	seen    atomic.Uint64         // the highest revision

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
// replicas and TTL differ from the [Config] is logged. Open returns [ErrUnfit] for a bucket that cannot be relied on. It
// returns by the time ctx ends.
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

// Look reads the present settings of the bucket, opening it first if necessary. If they do not fit any more, Look
// returns [ErrUnfit], and so do all other calls until Look finds them corrected.
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

// Known returns the highest revision of the bucket that this process knows of.
func (b *Bucket) Known() uint64 { return b.seen.Load() }

// Saw notes a revision that the bucket has given to this process or another one.
func (b *Bucket) Saw(revision uint64) {
	for last := b.Known(); revision > last && !b.seen.CompareAndSwap(last, revision); {
		last = b.Known()
	}
}

// Time returns the clock of the server that leads the bucket's stream. Entries are dated by it.
func (b *Bucket) Time(ctx context.Context) (time.Time, error) {
	return on(ctx, b, func() (time.Time, error) {
		i, err := timed(&b.latency, func() (Info, error) { return b.streams.Info(ctx, b.bucket) })
		if err == nil && i.Now.IsZero() {
			err = errors.New("buckets: nats-server does not tell its time; run 2.10 or later")
		}
		return i.Now, err
	})
}

// Enough returns how long a number of requests in a row may take: least, or longer where JetStream is far away.
func (b *Bucket) Enough(requests int, least time.Duration) time.Duration {
	return b.latency.enough(requests, least)
}

// Measure times one request, with a timeout of 3 s, if the last one got no answer: Enough then knows how slow JetStream
// is.
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
