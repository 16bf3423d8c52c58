// Package buckets opens the JetStream KV buckets that hold natsid's durable state as soon as JetStream is there, and
// creates those that are missing.
//
// A [Bucket] uses JetStream through [Streams], below which a test puts a fake. Any client's KV interface and `nats kv`
// read and write the same buckets. Two things that the KV interface does not offer carry the laws of uniqueness:
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
	"crypto/rand"
	"errors"
	"log/slog"
	"time"
)

// Config describes a bucket.
type Config struct {
	Name        string
	Description string
	TTL         time.Duration // of each value since it was put; 0 keeps it forever
	Replicas    int           // of a bucket that is created; 0 chooses, see [Bucket]
	// Whole keeps all entries of a key; then the oldest go first when the bucket has MaxBytes, or an eighth or less of
	// them where JetStream has no room for more. It needs a TTL.
	Whole    bool
	MaxBytes int64
	// Insist says that a read is made again if it has no answer soon: requests wait for those of the bucket.
	Insist bool
	// Tolerant says that a bucket which is open is used on where its settings become such that it forgets, or takes
	// what others write: Look reports them, and the owner stops by itself. One that takes no writes is refused all
	// the same.
	Tolerant bool
	// Fleeting says that all that the bucket holds is put again within seconds: a JetStream that is a single server
	// need not have it on disk before it acknowledges it. Alone says that it is one.
	Fleeting, Alone bool
	// Lost, if set, is called when a bucket that was open is gone with all that it held: JetStream was wiped, or the
	// bucket was deleted. The call that finds out creates it again. Lost must not block.
	Lost func()
	// MayFound, if set, is asked before a bucket is made by a process that saw none of its name before. An error does
	// not prevent the making; but the bucket is then not the process's own: see [State].
	MayFound func(context.Context) error
	// Found, if set, is called for a bucket that this process has just founded, before any other call can use it. It
	// must use Bucket.Found alone.
	Found func(context.Context, State)
	Log   *slog.Logger // nil discards
	// WentBack, if set, is called when an acknowledged write shows that the bucket went back: revisions only rise, and
	// this one is not above all that were known before the write was sent. The call comes before the write returns. It
	// must not block.
	WentBack func(why string)
}

// A Bucket is a JetStream KV bucket that is opened when it is first needed: JetStream may be away at that time, or for
// long. Until it is open each call tries to open it, concurrent calls together, and fails if that fails. A call that
// finds the bucket gone, so that JetStream knows none by its name, creates it again. An open bucket costs a call one
// atomic load. It is safe for concurrent use.
//
// A bucket that is made without a choice of replicas gets three, or one where JetStream is a single server, as on a
// leaf node. A cluster that has too few servers may still be starting, and replicas are not added later: so it gets one
// only after it had forming to show the others, and never while it knows of a server that is away.
type Bucket struct{ o *opening }

// New returns a bucket that is not open yet.
func New(streams Streams, cfg Config) *Bucket {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	r := &reader{streams: streams, bucket: cfg.Name, insists: cfg.Insist}
	o := &opening{reader: r, cfg: cfg, maker: maker{id: rand.Text()}}
	o.trouble = o.failed(errors.New("no answer yet"))
	return &Bucket{o}
}

// Open opens the bucket unless it is open, and creates it if none exists. One that exists is used as it is; mismatch,
// if not empty, says how it differs from the [Config]. One that cannot be relied on is refused with [ErrUnfit]. Open
// returns by the time ctx ends.
func (b *Bucket) Open(ctx context.Context) (mismatch string, err error) {
	a, err := b.o.get(ctx)
	if err != nil {
		return "", err
	}
	return a.mismatch, nil
}

// Trouble returns why the bucket is not open or not fit, or nil if it is both.
func (b *Bucket) Trouble() error {
	b.o.mu.Lock()
	defer b.o.mu.Unlock()
	if b.o.trouble != nil {
		return b.o.trouble
	}
	return b.o.unfit()
}

// Look reads the present settings of the bucket, opening it first if necessary. If they do not fit any more, Look
// returns [ErrUnfit], and so do all other calls until Look finds them corrected.
func (b *Bucket) Look(ctx context.Context) (State, error) {
	for range 2 {
		a, err := b.o.get(ctx)
		if err != nil {
			return State{}, err
		}
		info, err := b.o.streams.Info(ctx, b.o.bucket)
		if err == nil {
			return b.o.maker.state(info), b.o.note(info)
		}
		if !errors.Is(err, ErrNoBucket) {
			return State{}, err
		}
		b.o.forget(a, err)
	}
	return State{}, b.o.failed(ErrNoBucket)
}

// Found writes the first value of a key into the very bucket that Look returned: not into another one that has taken
// its place since, for which it returns [ErrReplaced]. It returns [ErrKeyExists] if the key has a value, and
// [ErrKeyRemoved] if it had.
//
// The write names the bucket's highest revision. Those of a bucket made later lie above all of this one. Other writes
// come in between; after a few of them Found returns [ErrRevision].
func (b *Bucket) Found(ctx context.Context, s State, key string, value []byte) (err error) {
	never := uint64(0)
	for range 20 {
		now, err := b.o.streams.Info(ctx, b.o.bucket)
		if err != nil {
			return err
		}
		if !now.Created.Equal(s.Created) || now.FirstSeq != s.FirstSeq {
			return ErrReplaced
		}
		w := Write{Value: value, Last: &never, LastOfAll: &now.LastSeq}
		revision, err := b.o.streams.Publish(ctx, b.o.bucket, key, w)
		b.o.maker.saw(revision) // 0 after an error
		if !errors.Is(err, ErrRevision) {
			return err
		}
		last, err := b.o.streams.Last(ctx, b.o.bucket, key)
		if err == nil && last.Removed {
			return ErrKeyRemoved
		}
		if err == nil {
			return ErrKeyExists
		}
		if !errors.Is(err, ErrNoKey) {
			return err
		}
	}
	return ErrRevision
}

// Known returns the highest revision of the bucket that this process knows of.
func (b *Bucket) Known() uint64 { return b.o.maker.seen.Load() }

// Saw takes in a revision that the bucket has given, as this process or another has learnt.
func (b *Bucket) Saw(revision uint64) { b.o.maker.saw(revision) }

// Time returns the clock of the server that leads the bucket's stream. Entries are dated by it.
func (b *Bucket) Time(ctx context.Context) (time.Time, error) {
	return on(ctx, b.o, func() (time.Time, error) {
		i, err := timed(&b.o.latency, func() (Info, error) { return b.o.streams.Info(ctx, b.o.bucket) })
		if err == nil && i.Now.IsZero() {
			err = errors.New("buckets: nats-server does not tell its time; run 2.10 or later")
		}
		return i.Now, err
	})
}

// Enough returns the time within which so many requests, one after the other, should be answered: least, or more where
// JetStream is far away.
func (b *Bucket) Enough(requests int, least time.Duration) time.Duration {
	return b.o.latency.enough(requests, least)
}

// Measure asks JetStream for something, with more patience than other calls, if it left the last one unanswered: the
// next ones may need more time, see Enough.
func (b *Bucket) Measure(ctx context.Context) {
	b.o.latency.mu.Lock()
	unanswered := b.o.latency.unanswered
	b.o.latency.mu.Unlock()
	if !unanswered {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	_, _ = b.Time(ctx) // the time that it took is noted
}
