// Package buckets opens the JetStream KV buckets that natsid keeps its
// promises in, as soon as JetStream is there, and makes those that are missing.
package buckets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Config describes a bucket.
type Config struct {
	Name        string
	Description string
	TTL         time.Duration // of each value since it was put; 0: kept for ever
	Replicas    int           // 1 if 0
	// Lost, if set, is told when a bucket that was open is gone, and all that it
	// held with it: JetStream was wiped, or somebody deleted it. The call that
	// finds out makes it again. It must not block.
	Lost func()
}

// ErrForgets is returned for a bucket that must keep its values for ever and
// does not.
var ErrForgets = errors.New("the bucket forgets what it must keep")

// A Bucket is a JetStream KV bucket that is opened when it is first needed:
// JetStream may be away at that time, or for long. Until it is open each call
// tries to open it, all calls of a moment together, and fails if that fails.
// A bucket that is gone, so that JetStream knows of none by the name, is made
// again by the call that finds out. It is safe for concurrent use.
type Bucket struct {
	js  jetstream.JetStream
	cfg Config

	opened atomic.Pointer[attempt]

	mu      sync.Mutex
	attempt *attempt  // under way, or the one that succeeded; nil if none
	trouble error     // of the last attempt
	made    time.Time // when the bucket was made that was opened first

	last atomic.Uint64 // the highest revision that was seen
}

// An attempt to open a bucket. What it found is there once done is closed.
type attempt struct {
	done     chan struct{}
	kv       jetstream.KeyValue
	made     time.Time
	last     uint64 // its last revision
	mismatch string
	err      error
}

// New returns a bucket that is not open yet.
func New(js jetstream.JetStream, cfg Config) *Bucket { return &Bucket{js: js, cfg: cfg} }

// Open opens the bucket unless it is open, making it first if there is none.
// One that exists is used as it is; mismatch, if not empty, says how it
// differed from the [Config]. Only one that forgets what must be kept is
// refused, with [ErrForgets]. Open returns by the time ctx ends.
//
// What it makes differs from an ordinary bucket in two ways that the laws of
// uniqueness rest on. Its revisions begin at the present Unix time in
// microseconds, and above all that this Bucket has seen, so that those of a
// bucket deleted and made again never repeat: a compare-and-set with an old
// revision would otherwise succeed. And
// all reads are answered by the stream's leader: replicas lag, and a stale
// read would be taken for a foreign write.
func (b *Bucket) Open(ctx context.Context) (mismatch string, err error) {
	a, err := b.get(ctx)
	if err != nil {
		return "", err
	}
	return a.mismatch, nil
}

// Trouble returns why the bucket is not open, or nil if it is.
func (b *Bucket) Trouble() error {
	if b.opened.Load() != nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trouble == nil && b.opened.Load() == nil {
		return b.failed(errors.New("no answer yet"))
	}
	return b.trouble
}

func (b *Bucket) failed(why error) error {
	switch {
	case errors.Is(why, nats.ErrNoResponders):
		why = fmt.Errorf("nobody answers for JetStream, enable it in the nats-server: %w", why)
	case errors.Is(why, context.DeadlineExceeded):
		why = fmt.Errorf("no answer: JetStream has no leader, or this user no permission for it: %w", why)
	}
	return fmt.Errorf("bucket %s cannot be opened: %w", b.cfg.Name, why)
}

// get returns the attempt that opened the bucket. An attempt is shared, so it
// ends neither with the ctx nor with the life of the call that began it.
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

// openTimeout bounds an attempt: a cluster without a leader leaves requests
// unanswered, also when it has one again.
const openTimeout = 3 * time.Second

func (b *Bucket) try(a *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	if a.err = a.open(ctx, b.js, b.cfg, b.firstSeq()); a.err != nil {
		a.err = b.failed(a.err)
	}
	b.saw(a.last)
	b.mu.Lock()
	if b.trouble = a.err; a.err == nil {
		b.opened.Store(a)
		if b.made.IsZero() {
			b.made = a.made
		}
	} else {
		b.attempt = nil
	}
	b.mu.Unlock()
	close(a.done)
}

// firstSeq returns where the revisions of the bucket begin if it is made now.
// The law needs them above all that a bucket of the name ever had. The clock
// gives that if it is not set back by more than the bucket is old; a worker that
// has known the bucket does not depend on its clock.
func (b *Bucket) firstSeq() uint64 {
	const margin = 1_000_000 // writes of others since
	return max(uint64(time.Now().UnixMicro()), b.last.Load()+margin)
}

// saw keeps the highest revision of the bucket.
func (b *Bucket) saw(revision uint64) {
	for last := b.last.Load(); revision > last && !b.last.CompareAndSwap(last, revision); {
		last = b.last.Load()
	}
}

func (a *attempt) open(ctx context.Context, js jetstream.JetStream, cfg Config, firstSeq uint64) error {
	kv, err := js.KeyValue(ctx, cfg.Name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		_, err = js.CreateStream(ctx, streamConfig(cfg, firstSeq))
		if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			kv, err = js.KeyValue(ctx, cfg.Name)
		}
	}
	if err != nil {
		return err
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return err
	}
	have := status.Config()
	if cfg.TTL == 0 && have.TTL != 0 {
		return fmt.Errorf("%w: it has a TTL of %v; take that off", ErrForgets, have.TTL)
	}
	if have.Replicas != max(1, cfg.Replicas) || have.TTL != cfg.TTL {
		a.mismatch = fmt.Sprintf("bucket %s has %d replicas and a TTL of %v, wanted %d and %v", cfg.Name, have.Replicas, have.TTL, max(1, cfg.Replicas), cfg.TTL)
	}
	a.kv = kv
	if info := streamInfo(status); info != nil {
		a.made, a.last = info.Created, info.State.LastSeq
	}
	return nil
}

// streamInfo returns nil if the NATS client describes buckets in another way.
func streamInfo(status jetstream.KeyValueStatus) *jetstream.StreamInfo {
	if s, ok := status.(*jetstream.KeyValueBucketStatus); ok {
		return s.StreamInfo()
	}
	return nil
}

func streamName(cfg Config) string { return "KV_" + cfg.Name }

// streamConfig is what [jetstream.KeyValueConfig] stands for (ADR-8), with
// FirstSeq and without AllowDirect.
func streamConfig(cfg Config, firstSeq uint64) jetstream.StreamConfig {
	duplicates := 2 * time.Minute
	if cfg.TTL > 0 {
		duplicates = min(duplicates, cfg.TTL)
	}
	return jetstream.StreamConfig{
		Name:              streamName(cfg),
		Description:       cfg.Description,
		Subjects:          []string{"$KV." + cfg.Name + ".>"},
		FirstSeq:          firstSeq,
		MaxMsgsPerSubject: 1,
		MaxAge:            cfg.TTL,
		MaxBytes:          -1,
		MaxMsgSize:        -1,
		MaxMsgs:           -1,
		MaxConsumers:      -1,
		Replicas:          max(1, cfg.Replicas),
		Discard:           jetstream.DiscardNew,
		Duplicates:        duplicates,
		AllowRollup:       true,
		DenyDelete:        true,
	}
}

// on calls f on the bucket, opening it before if need be. If the bucket is gone
// it is made again, and f called on that: what f finds is then that nothing is
// there, and no revision that anybody knows.
func on[T any](ctx context.Context, b *Bucket, f func(jetstream.KeyValue) (T, error)) (v T, err error) {
	for range 2 {
		a, away := b.get(ctx)
		if away != nil {
			return v, away
		}
		if v, err = f(a.kv); !b.isGone(ctx, err) {
			return v, err
		}
		b.forget(a, err)
	}
	return v, b.failed(err) // not Trouble: another call may have opened it by now
}

// isGone reports whether an error says that there is no such bucket. Only
// JetStream's own word counts: a stream that does not answer may be without a
// leader.
func (b *Bucket) isGone(ctx context.Context, err error) bool {
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		_, err = b.js.Stream(ctx, streamName(b.cfg))
	}
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) ||
		errors.Is(err, nats.ErrStreamNotFound) // what a listing says
}

// forget closes the bucket that an attempt opened.
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

// Get returns the entry of a key as the leader has it, or
// [jetstream.ErrKeyNotFound].
func (b *Bucket) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	entry, err := on(ctx, b, func(kv jetstream.KeyValue) (jetstream.KeyValueEntry, error) { return kv.Get(ctx, key) })
	if err == nil {
		b.saw(entry.Revision())
	}
	return entry, err
}

// Create puts a value under a key that has none, or returns
// [jetstream.ErrKeyExists].
func (b *Bucket) Create(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	return b.write(ctx, func(kv jetstream.KeyValue) (uint64, error) { return kv.Create(ctx, key, value) })
}

// CreateFirst is Create for a key that never had a value: it returns
// [jetstream.ErrKeyDeleted] for one whose value was deleted or purged,
// or may have gone with a bucket that this call found lost.
func (b *Bucket) CreateFirst(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	again := false
	return b.write(ctx, func(kv jetstream.KeyValue) (uint64, error) {
		if again {
			return 0, jetstream.ErrKeyDeleted
		}
		again = true
		revision, err := kv.Update(ctx, key, value, 0)
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) && !errors.Is(err, jetstream.ErrKeyExists) {
			return revision, err
		}
		w, err := kv.Watch(ctx, key)
		if err != nil {
			return 0, err
		}
		defer w.Stop()
		select {
		case entry := <-w.Updates(): // the last one, or nil if it cannot be read yet
			if entry != nil && entry.Operation() != jetstream.KeyValuePut {
				return 0, jetstream.ErrKeyDeleted
			}
			return 0, jetstream.ErrKeyExists
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
}

// Update puts a value under a key whose revision is last, or returns
// [jetstream.ErrKeyRevisionMismatch].
func (b *Bucket) Update(ctx context.Context, key string, value []byte, last uint64) (revision uint64, err error) {
	return b.write(ctx, func(kv jetstream.KeyValue) (uint64, error) { return kv.Update(ctx, key, value, last) })
}

// Put puts a value under a key, whatever is there.
func (b *Bucket) Put(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	return b.write(ctx, func(kv jetstream.KeyValue) (uint64, error) { return kv.Put(ctx, key, value) })
}

func (b *Bucket) write(ctx context.Context, f func(jetstream.KeyValue) (uint64, error)) (revision uint64, err error) {
	revision, err = on(ctx, b, f)
	b.saw(revision) // 0 after an error
	return revision, err
}

// Purge removes a key.
func (b *Bucket) Purge(ctx context.Context, key string) error {
	_, err := on(ctx, b, func(kv jetstream.KeyValue) (struct{}, error) { return struct{}{}, kv.Purge(ctx, key) })
	return err
}

// Time returns the clock of the server that leads the bucket's stream, which
// dates its entries too.
func (b *Bucket) Time(ctx context.Context) (time.Time, error) {
	info, err := b.info(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return info.TimeStamp, nil
}

// IsOriginal reports whether the bucket is the one that was opened first, and
// not one made again since, by whomever.
func (b *Bucket) IsOriginal(ctx context.Context) (bool, error) {
	info, err := b.info(ctx)
	if err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return info.Created.Equal(b.made), nil
}

func (b *Bucket) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	status, err := on(ctx, b, func(kv jetstream.KeyValue) (jetstream.KeyValueStatus, error) { return kv.Status(ctx) })
	if err != nil {
		return nil, err
	}
	info := streamInfo(status)
	if info == nil {
		return nil, fmt.Errorf("buckets: the NATS client describes a bucket as a %T", status)
	}
	return info, nil
}

// All returns the present entries by key, deleted keys left out. The snapshot
// may be a little old: nothing may rest on it that a compare-and-set does not
// confirm. But each key that was there all the time is in it.
func (b *Bucket) All(ctx context.Context) (map[string]jetstream.KeyValueEntry, error) {
	all, _, err := b.AllAndRemoved(ctx)
	return all, err
}

// AllAndRemoved is All, and says which keys were deleted or purged.
func (b *Bucket) AllAndRemoved(ctx context.Context) (all map[string]jetstream.KeyValueEntry, removed map[string]bool, err error) {
	l, err := on(ctx, b, func(kv jetstream.KeyValue) (l listing, err error) {
		status, err := kv.Status(ctx)
		if err != nil {
			return l, err
		}
		l.keys = int(status.Values()) // one each, since there is no history
		l.watcher, err = kv.WatchAll(ctx)
		return l, err
	})
	if err != nil {
		return nil, nil, err
	}
	defer l.watcher.Stop()
	if err := l.read(ctx); err != nil {
		return nil, nil, err
	}
	removed = make(map[string]bool)
	maps.DeleteFunc(l.all, func(key string, e jetstream.KeyValueEntry) bool {
		if e.Operation() != jetstream.KeyValuePut {
			removed[key] = true
		}
		return removed[key]
	})
	return l.all, removed, nil
}

// A listing is a bucket being read.
type listing struct {
	keys    int // there were when it began, deleted ones included
	watcher jetstream.KeyWatcher
	all     map[string]jetstream.KeyValueEntry
}

// late is how long an entry that is missing may take to come.
const late = 100 * time.Millisecond

// read reads all entries. A key that changes meanwhile moves to the end, and
// the watcher counts it each time it passes: so it may say that this was all
// before it has shown every key. What it has not comes right after.
func (l *listing) read(ctx context.Context) error {
	l.all = make(map[string]jetstream.KeyValueEntry, l.keys)
	var missing <-chan time.Time // nil until the watcher says that this was all
	for {
		select {
		case entry, ok := <-l.watcher.Updates():
			switch {
			case !ok:
				return errors.New("the listing was cut off")
			case entry != nil:
				l.all[entry.Key()] = entry
			default:
				missing = time.After(late)
			}
			if missing != nil && len(l.all) >= l.keys {
				return nil
			}
		case <-missing: // it has expired, or was purged
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
