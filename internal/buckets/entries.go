package buckets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Get returns the entry of a key as the leader has it, or
// [jetstream.ErrKeyNotFound].
func (b *Bucket) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	entry, err := on(ctx, b, func(kv jetstream.KeyValue) (jetstream.KeyValueEntry, error) { return kv.Get(ctx, key) })
	if err != nil {
		return nil, err
	}
	b.saw(entry.Revision())
	return entry, nil
}

// Create puts a value under a key that has none, or returns
// [jetstream.ErrKeyExists].
func (b *Bucket) Create(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	return b.write(ctx, func(kv jetstream.KeyValue) (uint64, error) { return kv.Create(ctx, key, value) })
}

// CreateFirst is Create for a key that never had a value. It returns
// [jetstream.ErrKeyDeleted] for a key whose value was deleted or purged, or may
// have been lost with a bucket that this call found gone.
func (b *Bucket) CreateFirst(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	again := false
	return b.write(ctx, func(kv jetstream.KeyValue) (uint64, error) {
		if again {
			return 0, jetstream.ErrKeyDeleted
		}
		again = true
		revision, err := kv.Update(ctx, key, value, 0)
		if errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists) {
			return 0, whyTaken(ctx, kv, key)
		}
		return revision, err
	})
}

// whyTaken returns [jetstream.ErrKeyExists] for a key that has a value, and
// [jetstream.ErrKeyDeleted] for one that had.
func whyTaken(ctx context.Context, kv jetstream.KeyValue, key string) error {
	w, err := kv.Watch(ctx, key)
	if err != nil {
		return err
	}
	defer w.Stop()
	select {
	case entry := <-w.Updates(): // the last one, or nil if it cannot be read yet
		if entry != nil && entry.Operation() != jetstream.KeyValuePut {
			return jetstream.ErrKeyDeleted
		}
		return jetstream.ErrKeyExists
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Update puts a value under a key whose revision is last, or returns
// [jetstream.ErrKeyRevisionMismatch].
func (b *Bucket) Update(ctx context.Context, key string, value []byte, last uint64) (revision uint64, err error) {
	return b.write(ctx, func(kv jetstream.KeyValue) (uint64, error) { return kv.Update(ctx, key, value, last) })
}

// Put puts a value under a key, whatever its revision.
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

// Time returns the clock of the server that leads the bucket's stream. Entries
// are dated by it.
func (b *Bucket) Time(ctx context.Context) (time.Time, error) {
	info, err := b.info(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return info.TimeStamp, nil
}

// IsOriginal reports whether the bucket is the one that was opened first, and
// not one that any process has created again since.
func (b *Bucket) IsOriginal(ctx context.Context) (bool, error) {
	info, err := b.info(ctx)
	if err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return info.Created.Equal(b.created), nil
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

// All returns the present entries by key, without deleted keys. The snapshot may
// be a little old: nothing may rest on it that a compare-and-set does not
// confirm. Each key that existed all the time is in it.
func (b *Bucket) All(ctx context.Context) (map[string]jetstream.KeyValueEntry, error) {
	all, _, err := b.AllAndRemoved(ctx)
	return all, err
}

// AllAndRemoved is All; removed are the keys that were deleted or purged.
func (b *Bucket) AllAndRemoved(ctx context.Context) (
	all map[string]jetstream.KeyValueEntry, removed map[string]bool, err error,
) {
	l, err := on(ctx, b, func(kv jetstream.KeyValue) (*listing, error) { return list(ctx, kv) })
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
	keys    int // when it began, deleted ones included
	watcher jetstream.KeyWatcher
	all     map[string]jetstream.KeyValueEntry
}

func list(ctx context.Context, kv jetstream.KeyValue) (*listing, error) {
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, err
	}
	watcher, err := kv.WatchAll(ctx)
	// Without history there is one value for each key.
	return &listing{keys: int(status.Values()), watcher: watcher}, err
}

// late is how long an entry that is missing may take to arrive.
const late = 100 * time.Millisecond

// read reads all entries. A key that changes meanwhile moves to the end of the
// stream, and the watcher counts it each time it passes: so the watcher may
// report the end before it has shown every key. The missing ones follow at once.
func (l *listing) read(ctx context.Context) error {
	l.all = make(map[string]jetstream.KeyValueEntry, l.keys)
	var missing <-chan time.Time // nil until the watcher reports the end
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
		case <-missing: // the missing ones have expired or were purged
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
