package kvstore_test

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
)

// memory is a JetStream in memory with one bucket, in which writes of tags can be made to fail. The zero value has no
// bucket yet.
type memory struct {
	mu      sync.Mutex
	config  jetstream.StreamConfig
	last    uint64
	entries map[string]buckets.Entry
	hook    writeHook
}

// A writeHook replaces a write of a tag; write is the real one.
type writeHook func(write func() error) error

var _ buckets.Streams = (*memory)(nil)

// onWrite replaces writes of tags by hook from now on; nil ends that.
func (m *memory) onWrite(hook writeHook) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = hook
}

// A mark is the part of an entry that tests look at.
type mark struct {
	Mark, Seen, Least int64
	Disabled          bool
}

// mark returns the mark of a tag, a zero one if it has none.
func (m *memory) mark(tag string) (k mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = json.Unmarshal(m.entries[tag].Value, &k)
	return k
}

// entry returns the entry of a tag.
func (m *memory) entry(tag string) buckets.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[tag]
}

// put puts an entry in the place of that of a tag, as it is.
func (m *memory) put(tag string, e buckets.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[tag] = e; e.Revision == 0 {
		delete(m.entries, tag)
	}
}

// touch replaces the entry of a tag by one that says the same.
func (m *memory) touch(tag string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	e := m.entries[tag]
	e.Revision = m.last
	m.entries[tag] = e
}

// lose removes the entry of a tag without a trace, as a restore does.
func (m *memory) lose(tag string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, tag)
}

// remove leaves a delete marker of a tag.
func (m *memory) remove(tag string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	m.entries[tag] = buckets.Entry{Key: tag, Revision: m.last, Removed: true}
}

func (m *memory) Info(context.Context, string) (buckets.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		return buckets.Info{}, buckets.ErrNoBucket
	}
	return buckets.Info{StreamConfig: m.config, Created: time.Unix(1, 0), Now: time.Now(), LastSeq: m.last}, nil
}

func (m *memory) Make(_ context.Context, c jetstream.StreamConfig) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries != nil {
		return buckets.ErrBucketExists
	}
	m.config, m.last, m.entries = c, c.FirstSeq-1, make(map[string]buckets.Entry)
	return nil
}

func (m *memory) Last(ctx context.Context, _, key string) (buckets.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[key]
	if !ok {
		return e, cmp.Or(ctx.Err(), buckets.ErrNoKey)
	}
	return e, ctx.Err()
}

func (m *memory) Publish(ctx context.Context, _, key string, w buckets.Write) (revision uint64, err error) {
	write := func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case m.entries == nil:
			return buckets.ErrNoAnswer
		case w.Last != nil && m.entries[key].Revision != *w.Last, w.LastOfAll != nil && m.last != *w.LastOfAll:
			return buckets.ErrRevision
		}
		m.last++
		revision = m.last
		m.entries[key] = buckets.Entry{Key: key, Value: w.Value, Revision: m.last, Created: time.Now()}
		return nil
	}
	m.mu.Lock()
	hook := m.hook
	m.mu.Unlock()
	if hook == nil || buckets.IsOwn(key) {
		return revision, write()
	}
	return revision, hook(write)
}

func (m *memory) List(_ context.Context, _, prefix string) ([]buckets.Entry, error) {
	return m.from(prefix, 0), nil
}

func (m *memory) Next(_ context.Context, _, prefix string, from uint64) (buckets.Entry, error) {
	if all := m.from(prefix, from); len(all) > 0 {
		return all[0], nil
	}
	return buckets.Entry{}, buckets.ErrNoKey
}

func (m *memory) from(prefix string, revision uint64) (all []buckets.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, e := range m.entries {
		if e.Revision >= revision && strings.HasPrefix(key, prefix) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b buckets.Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	return all
}

// A view is JetStream as one worker reaches it.
type view struct {
	buckets.Streams
	before, after func()         // called once, before or after the next write of a tag
	shown         *buckets.Entry // what any read of a tag shows; nil: what it has
}

func (v *view) Last(ctx context.Context, bucket, key string) (buckets.Entry, error) {
	if v.shown != nil && !buckets.IsOwn(key) {
		return *v.shown, nil
	}
	return v.Streams.Last(ctx, bucket, key)
}

func (v *view) Publish(ctx context.Context, bucket, key string, w buckets.Write) (uint64, error) {
	once := func(f *func()) {
		if call := *f; call != nil && !buckets.IsOwn(key) {
			*f = nil
			call()
		}
	}
	once(&v.before)
	defer once(&v.after)
	return v.Streams.Publish(ctx, bucket, key, w)
}

// beside returns a store whose marks guard a table.
func beside(table segment.Table, streams buckets.Streams) *kvstore.Store {
	return watched(table, streams, nil)
}

// watched is beside with a callback for each alarm about a row.
func watched(table segment.Table, streams buckets.Streams, alarm func(tag, message string)) *kvstore.Store {
	return kvstore.New(streams, kvstore.Config{Bucket: "marks", Table: table, RowWentBack: alarm})
}
