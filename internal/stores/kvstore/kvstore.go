// Package kvstore keeps tags in a JetStream KV bucket; it is internal to natsid and may change.
//
// The bucket, id_segments by default, has one key per tag and no TTL. The value is JSON: see entry. It has the tag's
// mark: no ID below the mark is ever reserved again. The marks are the whole store, or they guard a [segment.Table], a
// database that may lose commits. A load, which reserves n IDs for this worker,
//
//  1. reads the mark at revision r and then, without a lock, the row of the table:
//     a = max(mark, max_id, floor), b = a + max(n, step); floor is the highest end of this worker's ranges;
//  2. raises the mark to b by a compare-and-set on r; if that is refused, the load starts over;
//  3. with a table, sets max_id to b on the condition that max_id is at most a. If the database acknowledges that it
//     changed one row, the range [a, b) is used; if it changed none, the load starts over.
//
// Step 2 alone keeps the ranges of natsid's workers disjoint, even if the table loses commits, or workers use two
// tables by mistake. Of all loads that read one revision, one compare-and-set succeeds; the others read again: see
// [jitter.Race]. Step 3 keeps the ranges disjoint from those of programs that know only the table, such as Leaf,
// unless the table returns to an earlier state.
//
// After an error in step 2 or 3 the next load uses the same range if the range is still this worker's: the entry has
// the random token of step 2, and max_id is at most a. So failing loads do not raise the mark without bound (keeper).
//
// An entry also has seen, the highest max_id that was ever read. A lower max_id shows that the row went back, which
// raises an alarm once. Leaf nodes take IDs in the row alone, so every poll raises each mark to the max_id of its row,
// at most a poll interval late. A poll also raises rows to their marks. A deleted tag is disabled; its row stays.
//
// Revisions of a bucket begin at its creation time, so a compare-and-set on a revision of a lost bucket fails in the
// bucket that replaced it. A bucket that was lost is created again, empty. Each mark counts in an era, the time
// between two resumes of the registry by an operator: see package era.
package kvstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// A Store is a [segment.Store] on a bucket with one key per tag. It is safe for concurrent use.
//
// Law of uniqueness: the mark of a tag, below which no ID is reserved again, only rises, and only by a compare-and-set
// on the revision at which the mark was read. So of all loads that read one mark, one raises it. The range below the
// new mark is used only if that write was acknowledged, or if a later read shows the random token of that write. With
// a table the range begins at or above the max_id that was read. It is used only if an acknowledged UPDATE has also
// raised max_id from at most the start of the range to its end.
type Store struct {
	cfg      Config
	kv       Bucket
	own      *buckets.Bucket               // kv, if it is JetStream's; nil in simulations
	kept     keeper                        // ranges that failed loads reserved, or may have reserved
	listed   atomic.Pointer[[]segment.Tag] // tags for the pages of a list after the first; nil if none are cached
	setbacks setbacks
	atOnce   int // how many tags a poll compares with their rows concurrently
}

var _ segment.Store = (*Store)(nil)

// Config is what a store needs. Bucket must be set.
type Config struct {
	Bucket   string
	Replicas int           // of a bucket that is created; 0 means 3 or 1: see [buckets.Bucket]
	Table    segment.Table // the table that the marks guard; nil for none
	// Lost, if set, is called when the open bucket no longer exists. The bucket is then created again, empty. Lost must
	// not block.
	Lost func()
	// Existing says that this process creates no bucket and writes no identity, which names the registry: an operator's
	// command must not take an empty bucket, whose marks were lost, for a new one.
	Existing bool
	// MayFound, if set, decides whether the bucket may be the first of its name: see [buckets.Config].
	MayFound func(context.Context) error
	Log      *slog.Logger // nil discards
	// WentBack, if set, is called when an acknowledged write shows that the bucket is in an earlier state again. It is
	// called before a load returns its range, and must not block. The parameter need is by how much the mark of a tag
	// is below the highest end of this worker's ranges; 0 if unknown.
	WentBack func(why string, need int64)
	// Eras returns the identity of the registry, the entry that describes it, as this worker knows it: see
	// [lineage.Member]. Its eras, the times between resumes, say by how much marks are raised when read. If Eras is
	// nil, the identity in the bucket is read.
	Eras func() era.Identity
	// RowWentBack, if set, is called once for each loss of commits that shows in the row of a tag.
	RowWentBack func(tag, message string)
	Raised      segment.Raised // nil discards
	Process     func() string  // returns the name of this process in [segment.Run]; nil is a random one
	Clock       segment.Clock  // nil is [segment.SystemClock]
}

// Bucket is what a store uses of its bucket. [buckets.Bucket] implements it.
type Bucket interface {
	Get(ctx context.Context, key string) (buckets.Entry, error)
	Latest(ctx context.Context, prefix string) (map[string]buckets.Entry, error)
	Create(ctx context.Context, key string, value []byte) (revision uint64, err error)
	CreateFirst(ctx context.Context, key string, value []byte) (revision uint64, err error)
	Update(ctx context.Context, key string, value []byte, last uint64) (revision uint64, err error)
	UpdateSoon(ctx context.Context, key string, value []byte, last uint64) (revision uint64, err error)
}

// New returns a store on a JetStream bucket. A call on the store opens the bucket if none has yet, and fails if it
// cannot. A new bucket gets an identity, which names its registry.
func New(streams buckets.Streams, cfg Config) *Store {
	s := On(nil, cfg)
	cfg = s.cfg
	s.own = buckets.New(streams, buckets.Config{
		Name: cfg.Bucket, Description: "natsid: high-water marks of the tags", Replicas: cfg.Replicas,
		Insist: true, Tolerant: true,
		Existing: cfg.Existing, Lost: cfg.Lost, MayFound: cfg.MayFound, Log: cfg.Log,
		First: func(created time.Time) (string, []byte) {
			return era.Key, era.Found(s.Kind(), created).Encode()
		},
		WentBack: func(why string) { cfg.WentBack(why, 0) },
	})
	s.kv, s.atOnce = s.own, catchUps
	return s
}

// On returns a store on a bucket that need not be JetStream's, such as a simulation's.
func On(b Bucket, cfg Config) *Store {
	if cfg.RowWentBack == nil {
		cfg.RowWentBack = func(string, string) {}
	}
	if cfg.WentBack == nil {
		cfg.WentBack = func(string, int64) {}
	}
	if cfg.Raised == nil {
		cfg.Raised = func(string, int64, int64, segment.Run) {}
	}
	if cfg.Process == nil {
		process := rand.Text()
		cfg.Process = func() string { return process }
	}
	if cfg.Clock == nil {
		cfg.Clock = segment.SystemClock
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Store{cfg: cfg, kv: b, setbacks: setbacks{alarm: cfg.RowWentBack}, atOnce: 1}
}

// Kind returns what the marks are: the store itself ([era.Alone]), or the guard of a table ([era.Guarded]).
func (s *Store) Kind() string {
	if s.cfg.Table != nil {
		return era.Guarded
	}
	return era.Alone
}

// Own returns the bucket, which also holds natsid's own keys, such as the identity. It is nil in simulations.
func (s *Store) Own() *buckets.Bucket { return s.own }

// Delete implements [segment.Store]. The row of a table stays, with its max_id: the owners of the table may remove it.
// Law: each call also raises the tag's mark to the row's max_id, since Leaf nodes may load IDs of a deleted tag until
// its row is removed. So a tag that is created again begins above those IDs.
func (s *Store) Delete(ctx context.Context, tag string) error {
	defer s.kept.drop(tag)
	return s.change(ctx, tag, func(e *entry) error {
		e.Disabled = true //mutant:deleted
		return nil
	})
}

// Look implements [segment.Store].
func (s *Store) Look(ctx context.Context, tag string) (segment.Tag, error) {
	t, err := s.read(ctx, tag)
	if err != nil {
		return segment.Tag{}, wrap(tag, err)
	}
	return t.tag(tag), nil
}
