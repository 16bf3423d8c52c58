package simulation_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
)

// A jetStream holds the bucket of marks.
type jetStream struct {
	world *world
	links
	bucket   *bucket   // nil if there is none
	past     []*bucket // for stale reads and backups, the newest last
	stale    bool      // reads may be old
	wasStale bool      // one was
}

// A bucket never changes but for until: each write makes a new one.
type bucket struct {
	jetstream.StreamConfig
	created time.Time
	last    uint64
	entries map[string]buckets.Entry
	until   time.Time // when another one took its place
}

// put replaces the bucket.
func (j *jetStream) put(b *bucket) {
	if old := j.bucket; old != nil {
		old.until = time.Now()
		j.past = append(j.past, old)
		j.past = j.past[max(0, len(j.past)-60):]
	}
	j.bucket = b
}

// with returns the bucket with one more entry.
func (b *bucket) with(e buckets.Entry) *bucket {
	next := *b
	next.last++
	e.Revision, e.Created = next.last, time.Now()
	next.entries = maps.Clone(b.entries)
	next.entries[e.Key] = e
	return &next
}

// deposed is how long a leader that has lost its group continues, at most (nats-server 2.15.2).
const deposed = 10 * time.Second

// read returns the bucket as one read may find it: as a leader has it that was deposed and has not heard of it.
func (j *jetStream) read() *bucket {
	w := j.world
	if n := len(j.past); j.stale && n > 0 && w.one(2) {
		old := j.past[max(0, n-1-w.rnd.IntN(6))]
		if time.Since(old.until) < deposed {
			j.wasStale = true
			return old
		}
	}
	return j.bucket
}

// behind returns the bucket as a member of the cluster has it, now and then without the last writes.
func (j *jetStream) behind() *bucket {
	if n := len(j.past); n > 0 && j.world.one(3) {
		return j.past[max(0, n-1-j.world.rnd.IntN(3))]
	}
	return j.bucket
}

// from returns the entries from a revision on whose keys begin with prefix, in the order of their revisions.
func (b *bucket) from(prefix string, revision uint64) (all []buckets.Entry) {
	for key, e := range b.entries {
		if e.Revision >= revision && strings.HasPrefix(key, prefix) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b buckets.Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	return all
}

// A streams is JetStream as one process reaches it.
type streams struct {
	*jetStream
	life *life
}

var _ buckets.Streams = (*streams)(nil)

func (s *streams) call(ctx context.Context, what string, apply func() error) error {
	c := call{life: s.life, ctx: ctx, what: what, store: &s.links, apply: apply}
	return c.do()
}

func (s *streams) write(ctx context.Context, what string, apply func() error) error {
	c := call{life: s.life, ctx: ctx, what: what, store: &s.links, apply: apply, write: true}
	return c.do()
}

// Info implements [buckets.Streams].
func (s *streams) Info(ctx context.Context, _ string) (buckets.Info, error) {
	var i buckets.Info
	err := s.call(ctx, "info", func() error {
		b := s.bucket
		if b == nil {
			return buckets.ErrNoBucket
		}
		i = buckets.Info{StreamConfig: b.StreamConfig, Created: b.created, Now: time.Now(), LastSeq: b.last}
		return nil
	})
	if err != nil {
		return buckets.Info{}, err
	}
	return i, nil
}

// Make implements [buckets.Streams].
func (s *streams) Make(ctx context.Context, c jetstream.StreamConfig) error {
	return s.write(ctx, "make", func() error {
		if s.bucket != nil {
			return buckets.ErrBucketExists
		}
		s.put(&bucket{c, time.Now(), c.FirstSeq - 1, map[string]buckets.Entry{}, time.Time{}})
		return nil
	})
}

// Last implements [buckets.Streams].
func (s *streams) Last(ctx context.Context, _, key string) (buckets.Entry, error) {
	var e buckets.Entry
	err := s.call(ctx, "read "+key, func() error {
		b, ok := s.read(), false
		if b == nil {
			return buckets.ErrNoBucket
		}
		if e, ok = b.entries[key]; !ok {
			return buckets.ErrNoKey
		}
		return nil
	})
	if err != nil {
		return buckets.Entry{}, err
	}
	return e, nil
}

// Publish implements [buckets.Streams].
func (s *streams) Publish(ctx context.Context, _, key string, m buckets.Write) (uint64, error) {
	if m.LastOfAll != nil { // one call more, as in the schedules whose seeds mutants name
		if _, err := s.Info(ctx, ""); err != nil {
			return 0, err
		}
	}
	var revision uint64
	err := s.write(ctx, "write "+key, func() error {
		b := s.bucket
		if b == nil {
			return buckets.ErrNoAnswer
		}
		if m.Last != nil && b.entries[key].Revision != *m.Last || m.LastOfAll != nil && b.last != *m.LastOfAll {
			return buckets.ErrRevision
		}
		e := buckets.Entry{Key: key, Value: m.Value, Removed: m.Purge}
		if op := s.world.acting.op; op != nil && strings.Contains(string(b.entries[key].Value), disabled) {
			op.revived = op.verb == createTag
		}
		before := b.entries[key]
		s.put(b.with(e))
		if strings.HasPrefix(s.world.acting.origin(), "load") && !buckets.IsOwn(key) {
			s.life.reserves(key, before, s.bucket.entries[key])
		}
		revision = s.bucket.last
		if t := s.world.tags[key]; t != nil {
			t.written = s.world.now()
		}
		if id, err := era.Decode(m.Value); key == era.Key && err == nil {
			s.world.identity.Store(&id)
		}
		if op := s.world.acting.op; !sayTheSame(before, e) && !(op != nil && op.reservesName(e)) {
			s.world.wrote(key)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return revision, nil
}

// List implements [buckets.Streams]. The member of a cluster that lists may be behind.
func (s *streams) List(ctx context.Context, _, prefix string) (all []buckets.Entry, err error) {
	err = s.call(ctx, "list "+prefix, func() error {
		if s.bucket == nil {
			return buckets.ErrNoBucket
		}
		all = s.behind().from(prefix, 0)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Next implements [buckets.Streams].
func (s *streams) Next(ctx context.Context, _, prefix string, from uint64) (buckets.Entry, error) {
	var e buckets.Entry
	err := s.call(ctx, "next "+prefix, func() error {
		if s.bucket == nil {
			return buckets.ErrNoBucket
		}
		rest := s.bucket.from(prefix, from)
		if len(rest) == 0 {
			return buckets.ErrNoKey
		}
		e = rest[0]
		return nil
	})
	if err != nil {
		return buckets.Entry{}, err
	}
	return e, nil
}

// These are parts of the entry of a tag that is deleted, of one that is being created, and of one that had a row.
const (
	disabled = `"disabled":true`
	claimed  = `"claimed":true`
	seen     = `"seen":`
)
