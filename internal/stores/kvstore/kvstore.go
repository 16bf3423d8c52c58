// Package kvstore keeps the marks of tags in a JetStream KV bucket; it is internal to natsid and may change.
//
// The bucket, id_segments by default, has one key per tag and no TTL. The value is JSON: mark, seen, step,
// description, disabled, least, tokens and rules. It serves alone, as a [segment.Store], or as the [segment.Marks] that
// guard a table.
//
// Of all loads that read one revision one compare-and-set wins; the others read again: see [jitter.Race].
//
// Revisions of a bucket begin at its creation time, so a write based on a revision of a lost bucket fails in the
// bucket that replaced it. A bucket that was lost with all marks is created again, empty. In such a bucket no tag is
// created on first use, since any could be one that other workers have loaded: the operator says where it continues.
package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/internal/stores/attempt"
	"github.com/natsid/natsid/segment"
)

// A Store is a [segment.Store] on a bucket with one key per tag. It is safe for concurrent use.
//
// Law of uniqueness: the mark of a tag only rises, and only by a compare-and-set from the revision it was read at, so
// of all loads that read one mark a single one raises it. The range below the new mark is used only if that write was
// acknowledged, or if the entry read back bears the random token of that very write.
type Store struct {
	cfg    Config
	kv     *buckets.Bucket
	ids    *identityCheck
	kept   attempt.Ranges                // of loads whose acknowledgement was lost
	listed atomic.Pointer[[]segment.Tag] // for the pages of a list after the first; nil if none is cached
}

var (
	_ segment.Store = (*Store)(nil)
	_ segment.Marks = (*Store)(nil)
)

// Config is what a store needs. Bucket must be set.
type Config struct {
	Bucket   string
	Replicas int  // of a bucket that is created; 0 chooses
	Kind     Kind // "" is Alone
	// Lost, if set, is called when an open bucket was gone with all marks; it is created again, empty. It must not
	// block.
	Lost func()
	// MayFound, if set, is asked before the bucket is made, and before it gets an identity: an error says that another
	// bucket of the name is or was in use.
	MayFound func(context.Context) error
	Log      *slog.Logger // nil discards
	// WentBack, if set, is called when an acknowledged write shows that the bucket went back to an earlier state. The
	// call comes before a load returns its range, and must not block.
	WentBack func(why string)
	Wrote    segment.Wrote // nil for nobody
	Clock    segment.Clock // nil is [segment.SystemClock]
}

// New returns a store on a bucket. The first call that can opens the bucket; until then all calls return why it cannot
// be opened.
func New(streams buckets.Streams, cfg Config) *Store {
	cfg.Kind = cmp.Or(cfg.Kind, Alone)
	if cfg.WentBack == nil {
		cfg.WentBack = func(string) {}
	}
	if cfg.Wrote == nil {
		cfg.Wrote = func(string, segment.Write) {}
	}
	if cfg.Clock == nil {
		cfg.Clock = segment.SystemClock
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	ids := &identityCheck{cfg: cfg}
	ids.kv = buckets.New(streams, buckets.Config{
		Name: cfg.Bucket, Description: "natsid: high-water marks of the tags", Replicas: cfg.Replicas,
		Insist: true, Tolerant: true,
		Lost: cfg.Lost, MayFound: cfg.MayFound, Found: ids.foundNow, Log: cfg.Log, WentBack: cfg.WentBack,
	})
	return &Store{cfg: cfg, kv: ids.kv, ids: ids}
}

// Own returns the bucket, for the keys of natsid's own beside the marks.
func (s *Store) Own() *buckets.Bucket { return s.kv }

// Open opens the bucket and creates it if necessary, as any other call would. mismatch says how an existing bucket
// differs from what is wanted. It returns [lineage.ErrKind] for a bucket of another kind. What else is wrong with the
// identity stops the registry: see package lineage.
func (s *Store) Open(ctx context.Context) (mismatch string, err error) {
	if mismatch, err = s.kv.Open(ctx); err != nil {
		return "", err
	}
	if _, err = s.Check(ctx); errors.Is(err, lineage.ErrNoIdentity) || errors.Is(err, lineage.ErrIdentity) {
		err = nil
	}
	return mismatch, err
}

// Trouble returns why the bucket is not open or is refused, or nil if it is in use.
func (s *Store) Trouble() error {
	if err := s.kv.Trouble(); err != nil {
		return err
	}
	return s.ids.refused()
}

// Load implements [segment.Store].
func (s *Store) Load(ctx context.Context, tag string, n, floor int64) (l segment.Loaded, err error) {
	return s.load(ctx, tag, floor, false, func(step int64) int64 { return max(n, step) })
}

// LoadStrict implements [segment.Store].
func (s *Store) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (l segment.Loaded, err error) {
	return s.load(ctx, tag, floor, true, func(int64) int64 { return join() })
}

// Update implements [segment.Store]. It is one compare-and-set, as a load is: a load that read the mark before is
// overtaken and starts over.
func (s *Store) Update(ctx context.Context, tag string, c segment.Change) (t segment.Tag, err error) {
	how := segment.ByUpdate
	if c.Raises() {
		how = segment.ByRaise
	}
	err = s.change(ctx, tag, how, func(e *entry) (err error) {
		if e.Disabled {
			return segment.ErrDisabled
		}
		if t, err = c.Apply(e.tag(tag, time.Now()), math.MaxInt64); err != nil {
			return err
		}
		e.set(t)
		return nil
	})
	if err != nil {
		return segment.Tag{}, err
	}
	return t, nil
}

// Delete implements [segment.Store].
func (s *Store) Delete(ctx context.Context, tag string) error {
	defer s.kept.Drop(tag)
	return s.change(ctx, tag, segment.ByDelete, func(e *entry) error {
		e.Disabled = true
		return nil
	})
}

// Look implements [segment.Store].
func (s *Store) Look(ctx context.Context, tag string) (segment.Tag, error) {
	kve, e, err := s.read(ctx, tag)
	if err != nil {
		return segment.Tag{}, wrap(tag, err)
	}
	if e.Disabled {
		s.kept.Drop(tag)
	}
	return e.tag(tag, kve.Created), nil
}

// Poll implements [segment.Store]. A tag that was removed leaves a delete marker. One that has no entry and no marker
// was lost with its bucket, and its ranges remain valid. So do those of a tag whose entry is damaged.
func (s *Store) Poll(ctx context.Context, see func(segment.Listing)) error {
	if err := s.ids.refused(); err != nil {
		return err
	}
	all, removed, err := s.kv.AllAndRemoved(ctx)
	if err != nil {
		return fmt.Errorf("kvstore: list: %w", err)
	}
	tags := make([]segment.Tag, 0, len(all))
	for name, kve := range all {
		e, err := decode(s.cfg.Bucket, kve)
		if err != nil {
			continue
		}
		if e.Disabled {
			s.kept.Drop(name)
		}
		tags = append(tags, e.tag(name, kve.Created))
	}
	see(segment.Listing{Tags: tags, Removed: func(tag string) bool { return removed[tag] }})
	return nil
}
