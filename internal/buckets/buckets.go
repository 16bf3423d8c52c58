// Package buckets opens the JetStream KV buckets that hold natsid's durable
// state as soon as JetStream is there, and creates those that are missing.
//
// A [Bucket] uses JetStream through [Streams], below which a test puts a fake. Any
// client's KV interface and `nats kv` read and write the same buckets. Two things
// that the KV interface does not offer carry the laws of uniqueness:
//
//   - FirstSeq: revisions begin at the present Unix time in microseconds, and
//     above all that this process has seen, so that those of a bucket that was
//     deleted and created again never repeat. A compare-and-set with an old
//     revision would succeed otherwise. This presumes a clock that is not set
//     back by more than the age of the bucket, and fewer than 10^6 writes/s on
//     average.
//   - No direct gets: the leader of the stream answers all reads of a key.
//     Replicas lag: about a tenth of the reads right after a write were stale, and
//     a stale record looks like another worker's.
//
// A bucket that keeps its values for ever is made so that nothing in it can be
// purged, and no message rolls up others. A bucket that exists is used as it is,
// unless its settings make it forget what it must keep, or take what others write:
// [ErrUnfit].
package buckets

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	Replicas    int           // of a bucket that is created; 0 chooses, see [Bucket]
	// MaxEntries is how many values a bucket with a TTL keeps that is created: the oldest go first. 0 keeps all.
	MaxEntries int64
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
	// Owner is the registry that the bucket belongs to, "" for any: one of another is refused.
	Owner string
	// Lost, if set, is called when a bucket that was open is gone with all that
	// it held: JetStream was wiped, or the bucket was deleted. The call that
	// finds out creates it again. Lost must not block.
	Lost func()
	// MayFound, if set, is asked before a bucket is made by a process that saw none
	// of its name before. An error does not prevent the making; but the bucket is
	// then not the process's own: see [State].
	MayFound func(context.Context) error
	// Kind is noted in a bucket that this process makes again. See [State].
	Kind string
	// Found, if set, is called for a bucket that this process has just founded,
	// before any other call can use it. It must use Bucket.Found alone.
	Found func(context.Context, State)
	Log   *slog.Logger // nil discards
	// WentBack, if set, is called when an acknowledged write shows that the
	// bucket went back: revisions only rise, and this one is not above all that
	// were known before the write was sent. The call comes before the write
	// returns. It must not block.
	WentBack func(why string)
}

// A Bucket is a JetStream KV bucket that is opened when it is first needed:
// JetStream may be away at that time, or for long. Until it is open each call
// tries to open it, concurrent calls together, and fails if that fails. A call
// that finds the bucket gone, so that JetStream knows none by its name, creates
// it again. An open bucket costs a call one atomic load. It is safe for
// concurrent use.
//
// A bucket that is made without a choice of replicas gets three, or one where
// JetStream is a single server, as on a leaf node. A cluster that has too few
// servers may still be starting, and replicas are not added later: so it gets one
// only after it had forming to show the others, and never while it knows of a
// server that is away.
type Bucket struct {
	streams Streams
	cfg     Config

	opened atomic.Pointer[attempt]

	changed atomic.Pointer[error] // what makes the open bucket unfit; nil if nothing
	maker   string                // of a bucket that this process founds

	mu      sync.Mutex
	attempt *attempt  // under way, or the one that succeeded; nil if none
	trouble error     // of the last attempt
	opens   int       // attempts that succeeded
	few     time.Time // when JetStream first had too few servers for the replicas; zero if it never had

	seen    atomic.Uint64 // the highest revision
	latency latency
	writes  pace // of UpdateSoon
}

// An attempt to open a bucket. Its other fields are valid once done is closed.
type attempt struct {
	done     chan struct{}
	info     Info
	mismatch string
	err      error
}

// New returns a bucket that is not open yet.
func New(streams Streams, cfg Config) *Bucket {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Bucket{streams: streams, cfg: cfg, maker: rand.Text()}
}

// Open opens the bucket unless it is open, and creates it if none exists. One
// that exists is used as it is; mismatch, if not empty, says how it differs from
// the [Config]. One that cannot be relied on is refused with [ErrUnfit]. Open
// returns by the time ctx ends.
func (b *Bucket) Open(ctx context.Context) (mismatch string, err error) {
	a, err := b.get(ctx)
	if err != nil {
		return "", err
	}
	return a.mismatch, nil
}

// Trouble returns why the bucket is not open or not fit, or nil if it is both.
func (b *Bucket) Trouble() error {
	if b.opened.Load() != nil {
		return b.unfit()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trouble == nil && b.opened.Load() == nil {
		return b.failed(errors.New("no answer yet"))
	}
	return b.trouble
}

func (b *Bucket) failed(why error) error {
	if errors.Is(why, context.DeadlineExceeded) {
		why = fmt.Errorf("no answer: JetStream has no leader, or is too far away: %w", why)
	}
	return fmt.Errorf("bucket %s cannot be opened: %w", b.cfg.Name, why)
}

// get returns the attempt that opened the bucket. Calls share an attempt, so it
// does not end with the call that began it, or with that call's ctx.
func (b *Bucket) get(ctx context.Context) (*attempt, error) {
	if a := b.opened.Load(); a != nil {
		return a, nil
	}
	b.mu.Lock()
	a := b.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		b.attempt = a
		go b.try(a)
	}
	b.mu.Unlock()
	select {
	case <-a.done:
		return a, a.err
	case <-ctx.Done():
		return nil, b.failed(ctx.Err())
	}
}

// openTimeout bounds an attempt, unless JetStream is known to be far away. A
// cluster without a leader leaves requests unanswered, even after it has elected
// one.
const openTimeout = 3 * time.Second

// openRequests is how many requests an attempt needs at most: to make a bucket,
// and to write what it is.
const openRequests = 6

func (b *Bucket) try(a *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), b.Enough(openRequests, openTimeout))
	defer cancel()
	if a.info, a.err = b.find(ctx); a.err == nil {
		a.mismatch = b.cfg.mismatch(a.info)
		a.err = b.cfg.Judge(a.info.Settings)
	}
	if a.err != nil {
		a.err = b.failed(a.err)
	} else {
		b.found(ctx, a.info)
	}
	b.Saw(a.info.LastSeq)
	b.settle(a)
	close(a.done)
}

// find returns the state of the bucket, which it makes if there is none.
func (b *Bucket) find(ctx context.Context) (Info, error) {
	info, err := b.describe(ctx)
	if !errors.Is(err, ErrNoBucket) {
		return info, err
	}
	s := Settings{
		Description: b.cfg.Description, FirstSeq: b.firstSeq(), MaxAge: b.cfg.TTL, Replicas: b.cfg.Replicas,
		History: 1, AllowRollup: b.cfg.TTL > 0, DenyPurge: b.cfg.TTL == 0, Maker: b.founder(ctx),
		MaxMsgs: b.cfg.MaxEntries, DiscardNew: b.cfg.MaxEntries == 0, Owner: b.cfg.Owner,
	}
	if b.cfg.Whole {
		s.History, s.AllowRollup, s.DiscardNew, s.MaxBytes = -1, false, false, b.cfg.MaxBytes
	}
	err = b.makeWith(ctx, s)
	for ; errors.Is(err, ErrFull) && s.MaxBytes > 4<<20; err = b.makeWith(ctx, s) {
		s.MaxBytes /= 8 // JetStream reserves them
	}
	if err != nil && !errors.Is(err, ErrBucketExists) {
		return Info{}, err
	}
	return b.made(ctx)
}

// made describes a bucket that this process has made, or JetStream has refused to make since there is one. Not every
// server knows of it at once.
func (b *Bucket) made(ctx context.Context) (info Info, err error) {
	for tries := 0; ; tries++ {
		if info, err = b.describe(ctx); !errors.Is(err, ErrNoBucket) || tries == 10 {
			return info, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return info, err
		}
	}
}

func (b *Bucket) describe(ctx context.Context) (Info, error) {
	return read(ctx, b, openAgain, func(ctx context.Context) (Info, error) { return b.streams.Info(ctx, b.cfg.Name) })
}

// founder returns the Maker of a bucket that is made now: this process, if it saw no other bucket of the name and may
// found one.
func (b *Bucket) founder(ctx context.Context) string {
	if b.isAgain() {
		return madeAgain + b.cfg.Kind
	}
	if b.cfg.MayFound == nil {
		return b.maker
	}
	if err := b.cfg.MayFound(ctx); err != nil {
		b.cfg.Log.Warn("a bucket that was missing is made, but not as the first of its name: another one was in use; "+
			"no tag is created on first use in it", "bucket", b.cfg.Name, "error", err)
		return notFounded
	}
	return b.maker
}

// found lets the owner of a bucket that this process has founded write what it is.
func (b *Bucket) found(ctx context.Context, i Info) {
	if s := b.state(i); s.Mine && b.cfg.Found != nil {
		b.cfg.Found(ctx, s)
	}
}

// isAgain reports whether this process has opened a bucket before.
func (b *Bucket) isAgain() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opens > 0
}

// settle keeps the outcome of an attempt.
func (b *Bucket) settle(a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble = a.err
	if a.err != nil {
		b.attempt = nil
		return
	}
	b.opens++
	b.changed.Store(nil)
	b.opened.Store(a)
}

// firstSeq returns the first revision of a bucket that is created now. It must
// lie above every revision that a bucket of the name ever had. The clock ensures
// that unless it was set back by more than the age of the bucket; a process that
// has seen the bucket's revisions does not depend on its clock.
func (b *Bucket) firstSeq() uint64 {
	const margin = 1_000_000 // for writes of other workers since
	return max(uint64(time.Now().UnixMicro()), b.seen.Load()+margin)
}

// Saw takes in a revision that the bucket has given, as this process or another has learnt.
func (b *Bucket) Saw(revision uint64) {
	for last := b.seen.Load(); revision > last && !b.seen.CompareAndSwap(last, revision); {
		last = b.seen.Load()
	}
}

// on calls f with the bucket, opening it first if necessary. If the bucket is
// gone it is created again and f is called with the new one: f finds no key
// there, and no revision that was ever seen.
func on[T any](ctx context.Context, b *Bucket, f func() (T, error)) (v T, err error) {
	for range 2 {
		a, away := b.get(ctx)
		if away == nil {
			away = b.unfit()
		}
		if away != nil {
			return v, away
		}
		if v, err = f(); !b.isGone(ctx, err) {
			return v, err
		}
		b.forget(a, err)
	}
	return v, b.failed(err) // not Trouble, which another call may have cleared
}

// isGone reports whether an error says that the bucket does not exist. Only
// JetStream's own answer counts: a stream that does not respond may have no
// leader.
func (b *Bucket) isGone(ctx context.Context, err error) bool {
	if errors.Is(err, ErrNoAnswer) {
		_, err = b.streams.Info(ctx, b.cfg.Name)
	}
	return errors.Is(err, ErrNoBucket)
}

// forget closes the bucket that an attempt opened, and reports its loss once.
func (b *Bucket) forget(a *attempt, why error) {
	b.mu.Lock()
	first := b.opened.CompareAndSwap(a, nil)
	if first {
		b.attempt, b.trouble = nil, b.failed(why)
	}
	b.mu.Unlock()
	if first && b.cfg.Lost != nil {
		b.cfg.Lost()
	}
}
