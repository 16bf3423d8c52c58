package witness

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/buckets"
)

// streams is a JetStream in memory with one bucket, which can go back.
type streams struct {
	mu     sync.Mutex
	state  stored
	away   bool // nothing answers
	lose   bool // writes land, and their acknowledgements are lost
	writes map[string]int
	lists  atomic.Int64 // of witnesses

	dropAt atomic.Int64 // the read or write, counted down to it, that is never answered
	lands  atomic.Bool  // it is done nevertheless
}

type stored struct {
	made    time.Time
	last    uint64
	entries map[string]buckets.Entry
}

var _ buckets.Streams = (*streams)(nil)

func (s *streams) begin(ctx context.Context) error {
	select {
	case <-time.After(time.Millisecond): // so that schedules interleave
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	if s.away {
		s.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// backup returns the present state, which restore brings back.
func (s *streams) backup() stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.state
	b.entries = maps.Clone(b.entries)
	return b
}

// from returns the entries from a revision on whose keys begin with prefix, in the order of their revisions.
func (s stored) from(prefix string, revision uint64) (all []buckets.Entry) {
	for key, e := range s.entries {
		if e.Revision >= revision && strings.HasPrefix(key, prefix) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b buckets.Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	return all
}

// witnesses returns the keys of the witnesses in it.
func (s stored) witnesses() (keys []string) {
	for key, e := range s.entries {
		if strings.HasPrefix(key, prefix) && !e.Removed {
			keys = append(keys, key)
		}
	}
	return keys
}

func (s *streams) restore(b stored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = b
	s.state.entries = maps.Clone(b.entries)
}

// forget removes all keys that begin with prefix, as a maximum age does.
func (s *streams) forget(prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.state.entries, func(key string, _ buckets.Entry) bool { return strings.HasPrefix(key, prefix) })
}

// damage writes what no natsid writes under all keys that begin with prefix.
func (s *streams) damage(t *testing.T, prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	any := false
	for key, e := range s.state.entries {
		if strings.HasPrefix(key, prefix) {
			s.state.last++
			e.Value, e.Revision = e.Value[:len(e.Value)/2], s.state.last
			s.state.entries[key], any = e, true
		}
	}
	if !any {
		t.Fatal("nothing to damage")
	}
}

// put writes an entry as another program does.
func (s *streams) put(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.last++
	s.state.entries[key] = buckets.Entry{Key: key, Value: []byte(value), Revision: s.state.last}
}

func (s *streams) set(away, lose bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.lose = away, lose
}

// count returns the writes so far whose key begins with prefix.
func (s *streams) count(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, w := range s.writes {
		if strings.HasPrefix(key, prefix) {
			n += w
		}
	}
	return n
}

// Now implements [buckets.Streams]. Marks are not dated.
func (*streams) Now(context.Context, string) (time.Time, error) { return time.Now(), nil }

func (s *streams) Info(ctx context.Context, _ string) (buckets.Info, error) {
	if err := s.begin(ctx); err != nil {
		return buckets.Info{}, err
	}
	defer s.mu.Unlock()
	if s.state.entries == nil {
		return buckets.Info{}, buckets.ErrNoBucket
	}
	return buckets.Info{
		Settings: buckets.Settings{Replicas: 1, History: 1, DenyPurge: true},
		Created:  s.state.made, Now: time.Now(), LastSeq: s.state.last, Entries: len(s.state.entries),
	}, nil
}

func (s *streams) Make(ctx context.Context, _ string, cfg buckets.Settings) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.state.entries != nil {
		return buckets.ErrBucketExists
	}
	s.state = stored{made: time.Now(), last: cfg.FirstSeq, entries: map[string]buckets.Entry{}}
	return nil
}

func (s *streams) Defend(context.Context, string, string) error { return nil }

func (s *streams) Last(ctx context.Context, _, key string) (buckets.Entry, error) {
	if s.dropAt.Add(-1) == 0 {
		<-ctx.Done()
		return buckets.Entry{}, ctx.Err()
	}
	if err := s.begin(ctx); err != nil {
		return buckets.Entry{}, err
	}
	defer s.mu.Unlock()
	e, ok := s.state.entries[key]
	if !ok {
		return buckets.Entry{}, buckets.ErrNoKey
	}
	return e, nil
}

func (s *streams) Publish(ctx context.Context, _, key string, w buckets.Write) (revision uint64, err error) {
	dropped := s.dropAt.Add(-1) == 0
	if !dropped || s.lands.Load() {
		revision, err = s.publish(ctx, key, w)
	}
	if !dropped {
		return revision, err
	}
	<-ctx.Done()
	return 0, ctx.Err()
}

func (s *streams) publish(ctx context.Context, key string, w buckets.Write) (uint64, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	if s.state.entries == nil {
		return 0, buckets.ErrNoAnswer
	}
	if w.Last != nil && *w.Last != s.state.entries[key].Revision {
		return 0, buckets.ErrRevision
	}
	s.state.last++
	s.state.entries[key] = buckets.Entry{
		Key: key, Value: slices.Clone(w.Value), Revision: s.state.last, Created: time.Now(),
		Removed: w.Operation != buckets.Put,
	}
	if s.writes == nil {
		s.writes = map[string]int{}
	}
	s.writes[key]++
	if s.lose {
		return 0, context.DeadlineExceeded
	}
	return s.state.last, nil
}

func (s *streams) List(ctx context.Context, _, prefix string) ([]buckets.Entry, uint64, error) {
	if err := s.begin(ctx); err != nil {
		return nil, 0, err
	}
	defer s.mu.Unlock()
	if prefix != "" {
		s.lists.Add(1)
	}
	return s.state.from(prefix, 0), s.state.last, nil
}

func (s *streams) Keys(ctx context.Context, _, prefix string) (keys []string, last uint64, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, 0, err
	}
	defer s.mu.Unlock()
	for _, e := range s.state.from(prefix, 0) {
		keys = append(keys, e.Key)
	}
	return keys, s.state.last, nil
}

func (s *streams) Next(ctx context.Context, _, prefix string, from uint64) (buckets.Entry, error) {
	if err := s.begin(ctx); err != nil {
		return buckets.Entry{}, err
	}
	defer s.mu.Unlock()
	rest := s.state.from(prefix, from)
	if len(rest) == 0 {
		return buckets.Entry{}, buckets.ErrNoKey
	}
	return rest[0], nil
}
