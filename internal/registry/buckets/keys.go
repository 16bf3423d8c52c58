package buckets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Own is natsid's own key in a bucket; its other own keys begin with Own and a dot. No tag and no worker number can
// have such a key: see [IsOwn].
const Own = "_natsid"

// IsOwn reports whether a key is natsid's own.
func IsOwn(key string) bool { return key == Own || strings.HasPrefix(key, Own+".") }

// isKey reports whether the KV interface of NATS clients allows the key.
func isKey(key string) bool {
	const chars = "-/_=.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return key != "" && key[0] != '.' && key[len(key)-1] != '.' &&
		strings.Trim(key, chars) == "" && !strings.Contains(key, "..")
}

// Get returns the entry of a key as the leader has it, or [ErrNoKey].
func (b *Bucket) Get(ctx context.Context, key string) (Entry, error) {
	entry, err := b.last(ctx, key)
	if err == nil && entry.Removed {
		return Entry{}, ErrNoKey
	}
	return entry, err
}

// last returns the last entry of a key, a value or the marker of its removal; [ErrNoKey] if it never had a value.
func (b *Bucket) last(ctx context.Context, key string) (Entry, error) {
	if !isKey(key) {
		return Entry{}, ErrInvalidKey
	}
	entry, err := on(ctx, b, func() (Entry, error) { return b.newest(ctx, key) })
	b.Saw(entry.Revision) // the revision is 0 after an error
	return entry, err
}

// Create puts a value under a key that has none, or returns [ErrKeyExists].
func (b *Bucket) Create(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	revision, err = b.Update(ctx, key, value, 0)
	if !errors.Is(err, ErrRevision) {
		return revision, err
	}
	marker, err := b.marker(ctx, key)
	if err != nil {
		return 0, err
	}
	if revision, err = b.Update(ctx, key, value, marker); errors.Is(err, ErrRevision) {
		err = ErrKeyExists
	}
	return revision, err
}

// marker returns the revision of the marker that says that a key's value was removed. It returns [ErrKeyExists] for a
// key that has a value, or whose first value cannot be read yet.
func (b *Bucket) marker(ctx context.Context, key string) (revision uint64, err error) {
	last, err := b.last(ctx, key)
	if errors.Is(err, ErrNoKey) || err == nil && !last.Removed {
		err = ErrKeyExists
	}
	return last.Revision, err
}

// CreateFirst is Create for a key that must never have had a value. It returns [ErrKeyRemoved] if the key's value was
// deleted or purged, or may have been lost: this call found the bucket gone.
func (b *Bucket) CreateFirst(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	again, never := false, uint64(0)
	revision, err = b.write(ctx, key, func() (uint64, error) {
		if again {
			return 0, ErrKeyRemoved
		}
		again = true
		return b.streams.Publish(ctx, b.bucket, key, Write{Value: value, Last: &never})
	})
	if errors.Is(err, ErrRevision) {
		if _, err = b.marker(ctx, key); err == nil {
			err = ErrKeyRemoved
		}
	}
	return revision, err
}

// Update puts a value under a key if the key's revision is still the parameter last; otherwise it returns
// [ErrRevision].
func (b *Bucket) Update(ctx context.Context, key string, value []byte, last uint64) (revision uint64, err error) {
	return b.publish(ctx, key, Write{Value: value, Last: &last})
}

// UpdateSoon is [Bucket.Update] with a short timeout: 0.2 s, or three times the slowest recent write. When it has
// passed, UpdateSoon returns [ErrSilent], unless ctx has ended: the caller must find out whether the write landed, as
// after any error of unknown outcome.
//
// The timeout is short because a leader that steps down never answers the writes that it had accepted.
func (b *Bucket) UpdateSoon(
	ctx context.Context, key string, value []byte, last uint64,
) (revision uint64, err error) {
	began := time.Now()
	patience, ended := b.latency.forWrite()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	revision, err = b.Update(limited, key, value, last)
	switch {
	case err == nil || errors.Is(err, ErrRevision):
		ended(time.Since(began), true)
	case errors.Is(err, context.DeadlineExceeded) && limited.Err() != nil && ctx.Err() == nil:
		ended(patience, false)
		err = fmt.Errorf("%w: %w", ErrSilent, err)
	}
	return revision, err
}

// Put puts a value under a key, whatever its revision.
func (b *Bucket) Put(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	return b.publish(ctx, key, Write{Value: value})
}

// Purge removes a key. The bucket must allow purges, as one with a TTL does unless it is Whole.
func (b *Bucket) Purge(ctx context.Context, key string) error {
	_, err := b.publish(ctx, key, Write{Purge: true})
	return err
}

func (b *Bucket) publish(ctx context.Context, key string, w Write) (revision uint64, err error) {
	return b.write(ctx, key, func() (uint64, error) { return b.streams.Publish(ctx, b.bucket, key, w) })
}

func (b *Bucket) write(ctx context.Context, key string, f func() (uint64, error)) (revision uint64, err error) {
	if !isKey(key) {
		return 0, ErrInvalidKey
	}
	known := b.Known() // before the write is sent
	revision, err = on(ctx, b, func() (uint64, error) { return timed(&b.latency, f) })
	if err == nil && revision <= known && b.cfg.WentBack != nil {
		b.cfg.WentBack(fmt.Sprintf("a write to bucket %s was given revision %d, and %d was given before",
			b.bucket, revision, known))
		b.seen.Store(revision) // revisions rise from there
	}
	b.Saw(revision) // the revision is 0 after an error
	return revision, err
}

// All returns the last entry of each key, markers of removed values included, for each key that existed throughout
// the call. An entry may be a little old, so a decision that rests on it needs a compare-and-set. All asks a consumer
// instead of the stream's leader: workers have no right to read the heartbeats' bucket from the leader.
func (b *Bucket) All(ctx context.Context) (map[string]Entry, error) {
	return latest(on(ctx, b, func() ([]Entry, error) { return b.streams.List(ctx, b.bucket, "") }))
}

// Latest returns the last entry, a value or the marker of its removal, of each key that begins with prefix, which is ""
// or ends with a dot. Entries are no older than the call. A key written during the call may be missing, or have its
// former value.
func (b *Bucket) Latest(ctx context.Context, prefix string) (map[string]Entry, error) {
	return latest(on(ctx, b, func() ([]Entry, error) { return b.all(ctx, prefix) }))
}

// Known returns the highest revision of the bucket that this process knows of.
func (b *Bucket) Known() uint64 { return b.seen.Load() }

// Saw notes a revision that the bucket has given to a write of this process or of another one.
func (b *Bucket) Saw(revision uint64) {
	for last := b.Known(); revision > last && !b.seen.CompareAndSwap(last, revision); {
		last = b.Known()
	}
}
