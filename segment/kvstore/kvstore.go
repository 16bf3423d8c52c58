// Package kvstore keeps the marks of tags in a JetStream KV bucket; it is internal to natsid and may change.
//
// The bucket, id_segments by default, has one key per tag and no TTL. The value is JSON: mark, seen, step, description,
// disabled, least and tokens. It serves alone, as a [segment.Store], or as the [segment.Marks] that guard a table.
//
// Of all loads that read one revision one compare-and-set wins; the others read again: see [jitter.Race].
//
// Revisions of a bucket begin at its creation time, so a write based on a revision of a lost bucket fails in the
// bucket that replaced it. A bucket that was lost with all marks is created again, empty. In such a bucket no tag is
// created on first use, since any could be one that other workers have loaded: the operator says where it continues.
package kvstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/attempt"
)

// A Store is a [segment.Store] on a bucket with one key per tag. It is safe for concurrent use.
//
// Law of uniqueness: the mark of a tag only rises, and only by a compare-and-set from the revision it was read at, so
// of all loads that read one mark a single one raises it. The range below the new mark is used only if that write was
// acknowledged, or if the entry read back bears the random token of that very write.
type Store struct {
	cfg   Config
	log   *slog.Logger
	kv    *buckets.Bucket
	kept  attempt.Ranges // of loads whose acknowledgement was lost
	pages pages

	checked atomic.Pointer[error]   // what Check found of the kind; nil before the first
	deleted atomic.Pointer[Deleted] // tags that AllMarks found deleted
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
}

// New returns a store on a bucket. The first call that can opens the bucket; until then all calls return why it cannot
// be opened.
func New(streams buckets.Streams, cfg Config) *Store {
	if cfg.Kind == "" {
		cfg.Kind = Alone
	}
	if cfg.WentBack == nil {
		cfg.WentBack = func(string) {}
	}
	if cfg.Wrote == nil {
		cfg.Wrote = func(string, segment.Write) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{cfg: cfg, log: cfg.Log}
	s.kv = buckets.New(streams, buckets.Config{
		Name: cfg.Bucket, Description: "natsid: high-water marks of the tags", Replicas: cfg.Replicas,
		Insist: true, Tolerant: true,
		Lost: cfg.Lost, MayFound: cfg.MayFound, Found: s.foundNow, Log: cfg.Log, WentBack: cfg.WentBack,
	})
	return s
}

// Own returns the bucket, for the keys of natsid's own beside the marks.
func (s *Store) Own() *buckets.Bucket { return s.kv }

// Open opens the bucket and creates it if necessary, as any other call would. mismatch says how an existing bucket
// differs from what is wanted. It returns [ErrKind] for a bucket of another kind. What else is wrong with the identity
// stops the registry: see package lineage.
func (s *Store) Open(ctx context.Context) (mismatch string, err error) {
	if mismatch, err = s.kv.Open(ctx); err != nil {
		return "", err
	}
	if _, err = s.Check(ctx); errors.Is(err, ErrNoIdentity) || errors.Is(err, ErrIdentity) {
		err = nil
	}
	return mismatch, err
}

// Trouble returns why the bucket is not open or is refused, or nil if it is in use.
func (s *Store) Trouble() error {
	if err := s.kv.Trouble(); err != nil {
		return err
	}
	return s.refused()
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

// load loads as many IDs as wanted returns, which is called with the step before each compare-and-set.
//
// Law: where that has no answer soon, what it may have reserved is kept, and the entry is read again. That read decides
// what became of it, by its token, as it would in the tag's next load: see [attempt.Ranges].
func (s *Store) load(
	ctx context.Context, tag string, floor int64, strict bool, wanted func(step int64) int64,
) (l segment.Loaded, err error) {
	err = jitter.Race(ctx, again, func() (uint64, error) {
		l, err = s.tryLoad(ctx, tag, floor, strict, wanted)
		return l.Write.Read, err
	})
	if err != nil {
		return segment.Loaded{}, wrap(tag, err)
	}
	return l, nil
}

func (s *Store) tryLoad(
	ctx context.Context, tag string, floor int64, strict bool, wanted func(step int64) int64,
) (segment.Loaded, error) {
	kve, e, err := s.read(ctx, tag) //mutant:load-read
	//mutant:disabled
	if err == nil && e.Disabled {
		err = segment.ErrDisabled
	}
	if err != nil {
		return segment.Loaded{}, err
	}
	n := wanted(e.Step)
	if err := ctx.Err(); err != nil { // as when another worker is to load: what is kept stays
		return segment.Loaded{}, err
	}
	//mutant:marks-floor
	l, reserved, err := s.kept.Next(tag, attempt.View{
		Revision: kve.Revision, Written: kve.Created, Tokens: e.Tokens, Mark: e.Mark,
		Lowest: max(floor, e.Least), Limit: math.MaxInt64, Strict: strict,
	}, n)
	loaded := segment.Loaded{Range: l.Range, Step: e.Step, Least: e.Least, Write: l.Write}
	if err != nil || reserved {
		return loaded, err
	}
	mark := e.Mark
	e.Mark, e.Tokens = l.End, l.Tokens()
	e.Record.Load(time.Now(), l.Len())
	loaded.Write.Written, err = s.kv.UpdateSoon(ctx, tag, e.encode(), kve.Revision) //mutant:load-write
	switch {
	case err == nil && mark < floor: // that mark was the present one, since the write that replaced it was acknowledged
		s.cfg.WentBack(fmt.Sprintf("the mark of tag %s was %d, and this worker had loaded up to %d", tag, mark, floor))
	case isOvertaken(err):
		s.kept.Refused(tag, l)
	case err != nil:
		s.keep(tag, l)
	}
	return loaded, err //mutant:loaded
}

// keep keeps the range of a load that may have landed.
func (s *Store) keep(tag string, l attempt.Load) {
	s.kept.Keep(tag, l)
	if !l.Again() {
		s.cfg.Wrote(tag, l.Write)
	}
}

// ownEra returns the present era, "" if the bucket has none: an operator may create tags there.
func (s *Store) ownEra(ctx context.Context) (string, error) {
	id, err := s.readIdentity(ctx)
	if errors.Is(err, ErrNoIdentity) || errors.Is(err, ErrIdentity) {
		return "", nil
	}
	return id.Era(), err
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
	if err := s.refused(); err != nil {
		return err
	}
	all, removed, err := s.kv.AllAndRemoved(ctx)
	if err != nil {
		return fmt.Errorf("kvstore: list: %w", err)
	}
	tags := make([]segment.Tag, 0, len(all))
	for name, kve := range all {
		e, err := s.decode(kve)
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

// again reports whether a write that ended with err is tried again: another worker's came first, or it has no answer
// yet.
func again(err error) bool { return isOvertaken(err) || errors.Is(err, buckets.ErrSilent) }

// read returns the entry of a tag, or [segment.ErrUnknownTag].
//
// If the tag was created and no worker has loaded it, read looks at the identity once more, after it has read the
// entry. If it finds the era that the entry names, a compare-and-set from the entry's revision succeeds only in a
// bucket of that era: revisions do not repeat.
func (s *Store) read(ctx context.Context, tag string) (buckets.Entry, entry, error) {
	kve, e, err := s.readAny(ctx, tag)
	if err == nil {
		err = s.confirmFirst(ctx, &e)
	}
	return kve, e, err
}

// readAny reads an entry, also one that was written for a bucket that is lost.
func (s *Store) readAny(ctx context.Context, tag string) (buckets.Entry, entry, error) {
	if err := s.refusedFor(tag); err != nil {
		return buckets.Entry{}, entry{}, err
	}
	kve, err := s.kv.Get(ctx, tag)
	if errors.Is(err, buckets.ErrNoKey) {
		err = segment.ErrUnknownTag
	}
	if err != nil {
		return buckets.Entry{}, entry{}, err
	}
	e, err := s.decode(kve)
	return kve, e, err
}

// change replaces the entry of a tag by what f makes of it, by compare-and-set. When overtaken it reads again and calls
// f again. The error wraps [segment.ErrUncertain] if the write may have landed; otherwise nothing was changed.
func (s *Store) change(ctx context.Context, tag string, how segment.How, f func(*entry) error) error {
	return wrap(tag, jitter.Race(ctx, isOvertaken, func() (uint64, error) {
		read := s.read
		if how == segment.ByLift {
			read = s.readAny
		}
		kve, e, err := read(ctx, tag)
		if err != nil {
			return 0, err
		}
		before := e
		if err = f(&e); err != nil {
			return 0, err
		}
		return kve.Revision, s.replace(ctx, tag, how, kve, before, e)
	}))
}

// replace replaces the entry before, as kve has it, by e.
func (s *Store) replace(
	ctx context.Context, tag string, how segment.How, kve buckets.Entry, before, e entry,
) (err error) {
	try := attempt.New(kve.Revision, before.Tokens)
	e.Tokens = try.Tokens()
	w := segment.Write{
		How: how, Before: before.Mark, After: e.Mark, Read: kve.Revision, Replaced: kve.Created,
	}
	w.Written, err = s.kv.Update(ctx, tag, e.encode(), kve.Revision)
	err = s.outcome(ctx, tag, try, written(err))
	s.wrote(tag, w, err)
	return err
}

// wrote reports a write that ended with err, unless nothing was written.
func (s *Store) wrote(tag string, w segment.Write, err error) {
	if err == nil || errors.Is(err, segment.ErrUncertain) {
		s.cfg.Wrote(tag, w)
	}
}

// outcome returns what became of a write that ended with err. Where that is not known, the entry is read again: it
// bears the write's token if the write has landed.
func (s *Store) outcome(ctx context.Context, tag string, try attempt.Attempt, err error) error {
	if !errors.Is(err, segment.ErrUncertain) {
		return err
	}
	kve, e, again := s.read(ctx, tag)
	if again != nil {
		return err
	}
	switch try.Outcome(kve.Revision, e.Tokens) {
	case attempt.Landed:
		return nil
	case attempt.Refused:
		return buckets.ErrRevision
	}
	return err
}

// refusedFor returns why the entry of a tag must not be used, nil if it may: the bucket is refused, or the key is
// natsid's own. No request can name such a tag, but a row of a table can.
func (s *Store) refusedFor(tag string) error {
	if buckets.IsOwn(tag) {
		return fmt.Errorf("%w: %w", segment.ErrInvalid, buckets.ErrInvalidKey)
	}
	return s.refused()
}

// written marks the error of a write with [segment.ErrUncertain], unless it says that nothing was written.
func written(err error) error {
	certain := []error{buckets.ErrRevision, buckets.ErrKeyExists, buckets.ErrKeyRemoved, buckets.ErrNoAnswer,
		buckets.ErrInvalidKey, segment.ErrUnknownTag}
	if err == nil || slices.ContainsFunc(certain, func(c error) bool { return errors.Is(err, c) }) {
		return err
	}
	return fmt.Errorf("%w: %w", segment.ErrUncertain, err)
}

// isOvertaken reports whether a write was refused since another worker's came before.
func isOvertaken(err error) bool {
	return errors.Is(err, buckets.ErrRevision) || errors.Is(err, buckets.ErrKeyExists)
}

func wrap(tag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kvstore: tag %s: %w", tag, err)
}
