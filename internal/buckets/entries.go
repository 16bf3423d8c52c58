package buckets

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Own is a key of natsid's own in a bucket, beside those that hold what the bucket is for; others begin with it and a
// dot. No tag and no worker number can have such a key: see [IsOwn]. [Bucket.All] does not return them; all other
// methods take them like other keys.
const Own = "_natsid"

// IsOwn reports whether a key is natsid's own.
func IsOwn(key string) bool { return key == Own || strings.HasPrefix(key, Own+".") }

// Get returns the entry of a key as the leader has it, or [ErrNoKey].
func (b *Bucket) Get(ctx context.Context, key string) (Entry, error) {
	entry, err := b.last(ctx, key)
	if err == nil && entry.Removed {
		return Entry{}, ErrNoKey
	}
	return entry, err
}

// last returns the entry of a key, or its marker, or [ErrNoKey] for a key that never had a value.
func (b *Bucket) last(ctx context.Context, key string) (Entry, error) {
	if !isKey(key) {
		return Entry{}, ErrInvalidKey
	}
	entry, err := on(ctx, b, func() (Entry, error) { return b.ask(ctx, key) })
	if err != nil {
		return Entry{}, err
	}
	b.Saw(entry.Revision)
	return entry, nil
}

// ask asks for the entry of a key.
func (b *Bucket) ask(ctx context.Context, key string) (Entry, error) {
	return read(ctx, b, b.Enough(slow, askAgain), func(ctx context.Context) (Entry, error) {
		return b.streams.Last(ctx, b.cfg.Name, key)
	})
}

// Create puts a value under a key that has none, or returns [ErrKeyExists].
func (b *Bucket) Create(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	revision, err = b.Update(ctx, key, value, 0)
	if !errors.Is(err, ErrRevision) {
		return revision, err
	}
	marker, err := b.last(ctx, key)
	if err != nil && !errors.Is(err, ErrNoKey) {
		return 0, err
	}
	if err != nil || !marker.Removed { // without an entry, another write is under way that cannot be read yet
		return 0, ErrKeyExists
	}
	revision, err = b.Update(ctx, key, value, marker.Revision)
	if errors.Is(err, ErrRevision) {
		err = ErrKeyExists
	}
	return revision, err
}

// CreateFirst is Create for a key that never had a value. It returns [ErrKeyRemoved] for a key whose value was deleted
// or purged, or may have been lost with a bucket that this call found gone.
func (b *Bucket) CreateFirst(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	again := false
	never := uint64(0)
	revision, err = b.write(ctx, key, func() (uint64, error) {
		if again {
			return 0, ErrKeyRemoved
		}
		again = true
		return b.streams.Publish(ctx, b.cfg.Name, key, Write{Value: value, Last: &never})
	})
	if errors.Is(err, ErrRevision) {
		err = b.whyTaken(ctx, key)
	}
	return revision, err
}

// whyTaken returns [ErrKeyExists] for a key that has a value, or whose first value cannot be read yet, and
// [ErrKeyRemoved] for one that had.
func (b *Bucket) whyTaken(ctx context.Context, key string) error {
	entry, err := b.last(ctx, key)
	switch {
	case err == nil && entry.Removed:
		return ErrKeyRemoved
	case err == nil || errors.Is(err, ErrNoKey):
		return ErrKeyExists
	}
	return err
}

// Update puts a value under a key whose revision is last, or returns [ErrRevision].
func (b *Bucket) Update(ctx context.Context, key string, value []byte, last uint64) (revision uint64, err error) {
	return b.publish(ctx, key, Write{Value: value, Last: &last})
}

// Put puts a value under a key, whatever its revision.
func (b *Bucket) Put(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	return b.publish(ctx, key, Write{Value: value})
}

// Remove leaves a marker in place of a key's value, if the key's revision is last. It returns [ErrRevision] otherwise.
func (b *Bucket) Remove(ctx context.Context, key string, last uint64) error {
	_, err := b.publish(ctx, key, Write{Operation: Delete, Last: &last})
	return err
}

// Purge removes a key. The bucket must allow it: see [Settings].
func (b *Bucket) Purge(ctx context.Context, key string) error {
	_, err := b.publish(ctx, key, Write{Operation: Purge})
	return err
}

func (b *Bucket) publish(ctx context.Context, key string, w Write) (revision uint64, err error) {
	return b.write(ctx, key, func() (uint64, error) { return b.streams.Publish(ctx, b.cfg.Name, key, w) })
}

func (b *Bucket) write(ctx context.Context, key string, f func() (uint64, error)) (revision uint64, err error) {
	if !isKey(key) {
		return 0, ErrInvalidKey
	}
	known := b.Known() // before the write is sent
	revision, err = on(ctx, b, timed(b, f))
	if err == nil && revision <= known && b.cfg.WentBack != nil {
		b.cfg.WentBack(fmt.Sprintf("a write to bucket %s was given revision %d, and %d was given before",
			b.cfg.Name, revision, known))
		b.seen.Store(revision) // it goes on from there
	}
	b.Saw(revision) // 0 after an error
	return revision, err
}

// Known returns the highest revision of the bucket that this process knows of.
func (b *Bucket) Known() uint64 { return b.seen.Load() }

// Time returns the clock of the server that leads the bucket's stream. Entries
// are dated by it.
func (b *Bucket) Time(ctx context.Context) (time.Time, error) {
	return on(ctx, b, timed(b, func() (time.Time, error) { return b.streams.Now(ctx, b.cfg.Name) }))
}

// All returns the present entries by key, without deleted keys. The snapshot may be a little old: nothing may rest on
// it that a compare-and-set does not confirm. Each key that existed all the time is in it. No key is read by itself: a
// worker has no right to that in the bucket of heartbeats.
func (b *Bucket) All(ctx context.Context) (map[string]Entry, error) {
	entries, err := on(ctx, b, func() ([]Entry, error) {
		entries, _, err := b.streams.List(ctx, b.cfg.Name, "")
		return entries, err
	})
	if err != nil {
		return nil, err
	}
	all, _ := present(entries)
	return all, nil
}

// AllAndRemoved is All, and no older than the call; removed are the keys that were deleted or purged. A key that is
// written meanwhile may be missing, or have a value of before.
func (b *Bucket) AllAndRemoved(ctx context.Context) (all map[string]Entry, removed map[string]bool, err error) {
	entries, err := on(ctx, b, func() ([]Entry, error) {
		entries, last, err := b.streams.List(ctx, b.cfg.Name, "")
		if err != nil {
			return nil, err
		}
		return b.complete(ctx, "", entries, last)
	})
	if err != nil {
		return nil, nil, err
	}
	all, removed = present(entries)
	return all, removed, nil
}

// present sorts entries, of which a later one replaces an earlier one of its key.
func present(entries []Entry) (all map[string]Entry, removed map[string]bool) {
	all, removed = make(map[string]Entry, len(entries)), make(map[string]bool)
	for _, e := range entries {
		switch {
		case IsOwn(e.Key):
		case e.Removed:
			delete(all, e.Key)
			removed[e.Key] = true
		default:
			delete(removed, e.Key)
			all[e.Key] = e
		}
	}
	return all, removed
}

// complete reads from the leader what entries, as [Streams].List has returned them, lack of those up to a revision: the
// member of a cluster that listed them may be behind. So a later entry of a key follows the earlier one.
func (b *Bucket) complete(ctx context.Context, prefix string, entries []Entry, upTo uint64) ([]Entry, error) {
	more, err := b.since(ctx, prefix, highest(entries)+1, upTo) //mutant:behind
	if err != nil {
		return nil, err
	}
	return append(entries, more...), nil
}

// Since returns the entries, markers included, that begin with prefix and have the revision from or a higher one, in
// order, as the leader has them: by a request for each and one more, however much else was written. With an error it
// returns those that it has read before.
func (b *Bucket) Since(ctx context.Context, prefix string, from uint64) ([]Entry, error) {
	return on(ctx, b, func() ([]Entry, error) { return b.since(ctx, prefix, from, math.MaxUint64) })
}

// since is Since with a highest revision, beyond which it asks for nothing.
func (b *Bucket) since(ctx context.Context, prefix string, from, upTo uint64) (entries []Entry, err error) {
	for from <= upTo {
		e, err := read(ctx, b, b.Enough(slow, askAgain), func(ctx context.Context) (Entry, error) {
			return b.streams.Next(ctx, b.cfg.Name, prefix, from)
		})
		if errors.Is(err, ErrNoKey) {
			break
		}
		if err != nil {
			return entries, err
		}
		entries, from = append(entries, e), e.Revision+1
	}
	return entries, nil
}

// Listed returns the last entries of all keys of a bucket, markers included, and no older than the call, for who has no
// [Bucket]. A key that is written meanwhile may be missing, or have a value of before.
func Listed(ctx context.Context, streams Streams, bucket string) ([]Entry, error) {
	entries, last, err := streams.List(ctx, bucket, "")
	for from := highest(entries) + 1; err == nil && from <= last; {
		var e Entry
		if e, err = streams.Next(ctx, bucket, "", from); err == nil {
			entries, from = append(entries, e), e.Revision+1
		}
	}
	if err != nil && !errors.Is(err, ErrNoKey) {
		return nil, err
	}
	return latest(entries), nil
}

// latest returns entries without those that a later one of their key replaces.
func latest(entries []Entry) []Entry {
	at := make(map[string]int, len(entries))
	all := entries[:0]
	for _, e := range entries {
		i, again := at[e.Key]
		if !again {
			i = len(all)
			at[e.Key] = i
			all = append(all, e)
		}
		all[i] = e
	}
	return all
}

func highest(entries []Entry) (revision uint64) {
	for _, e := range entries {
		revision = max(revision, e.Revision)
	}
	return revision
}

// Current returns the present entries whose keys begin with prefix, which ends with a dot, without a gap, for keys that
// are seldom written: each that had a value when it was called is in it, with that value or a later one. upTo is the
// highest revision of then: no entry with a lower one is missing, not even that of a key which had been removed.
func (b *Bucket) Current(ctx context.Context, prefix string) (all map[string]Entry, upTo uint64, err error) {
	entries, upTo, err := b.current(ctx, prefix, true)
	if err != nil {
		return nil, 0, err
	}
	return standing(entries), upTo, nil
}

// AllOwn returns the present entries whose keys begin with prefix, which begins with [Own] and ends with a dot. Each
// key that had a value when it was called is in it. One that is written at that moment may have a value of before.
func (b *Bucket) AllOwn(ctx context.Context, prefix string) (map[string]Entry, error) {
	entries, _, err := b.current(ctx, prefix, false)
	if err != nil {
		return nil, err
	}
	return standing(entries), nil
}

// standing returns the last entries that are no markers, by key. A later one follows the earlier one of its key.
func standing(entries []Entry) map[string]Entry {
	all := make(map[string]Entry, len(entries))
	for _, e := range entries {
		if all[e.Key] = e; e.Removed {
			delete(all, e.Key)
		}
	}
	return all
}

// A roll is which keys of a bucket there are, markers included, and the highest revision.
type roll struct {
	keys []string
	last uint64
}

// current lists the keys that begin with prefix, and returns the highest revision of when it was called.
//
// Law: each key of then is in it. The leader calls the roll first. A member of a cluster that is behind may make the
// listing, which may also end before a key that is written meanwhile, and so moves behind all others: what it lacks is
// read from the leader. Where nobody calls the roll, all is.
//
// It may show an older value of a key that moves on, unless all is read that there is by the end.
func (b *Bucket) current(
	ctx context.Context, prefix string, toTheEnd bool,
) (entries []Entry, upTo uint64, err error) {
	entries, err = on(ctx, b, func() ([]Entry, error) {
		called, err := read(ctx, b, b.Enough(slow, askAgain), func(ctx context.Context) (r roll, err error) {
			r.keys, r.last, err = b.streams.Keys(ctx, b.cfg.Name, prefix)
			return r, err
		})
		if err != nil && b.cfg.Insist && isAnswer(err) {
			entries, err := b.walk(ctx, prefix, 0)
			upTo = highest(entries)
			return entries, err
		}
		if err != nil {
			return nil, err
		}
		upTo = called.last
		entries, err := b.listAnyhow(ctx, prefix, len(called.keys))
		if err != nil {
			return nil, err
		}
		last := called.last
		if toTheEnd {
			last = math.MaxUint64
		}
		if entries, err = b.complete(ctx, prefix, entries, last); err != nil {
			return nil, err
		}
		return b.answering(ctx, entries, called.keys)
	})
	return entries, upTo, err
}

// answering adds the entries of those keys that entries lack.
func (b *Bucket) answering(ctx context.Context, entries []Entry, keys []string) ([]Entry, error) {
	listed := make(map[string]bool, len(entries))
	for _, e := range entries {
		listed[e.Key] = true
	}
	for _, key := range keys {
		if listed[key] {
			continue
		}
		e, err := b.ask(ctx, key)
		if err == nil {
			entries = append(entries, e)
		} else if !errors.Is(err, ErrNoKey) { // none has a marker that has expired
			return nil, err
		}
	}
	return entries, nil
}
