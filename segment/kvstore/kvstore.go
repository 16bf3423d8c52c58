// Package kvstore keeps the high-water marks of tags in a JetStream KV bucket.
package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/segment"
)

// A Store is a [segment.Store] on a bucket with one key per tag.
//
// Law of uniqueness: the mark of a tag only rises, and only by a
// compare-and-set from the revision it was read at, so of all loads that read
// one mark a single one raises it. The range below the new mark is used only
// if that write was acknowledged; with any other outcome it is a hole.
type Store struct {
	kv *buckets.Bucket

	mu     sync.Mutex
	listed *listing // nil, or one that further pages are cut from
}

var (
	_ segment.Store = (*Store)(nil)
	_ segment.Marks = (*Store)(nil)
)

// entry is the value of a key.
type entry struct {
	Mark        int64  `json:"mark"`           // no ID below it is ever handed out again
	Seen        int64  `json:"seen,omitempty"` // highest max_id of a guarded table that was ever read
	Step        int64  `json:"step"`
	Description string `json:"description,omitempty"`
	Disabled    bool   `json:"disabled,omitempty"`
	Least       int64  `json:"least,omitempty"` // no ID below it is handed out, not even by who has loaded it
}

// New returns a store on a bucket, which is opened by the first call that can;
// until then all calls return why it cannot be. lost, if not nil, is told when
// an open bucket was gone with all marks; it is made again, empty.
func New(js jetstream.JetStream, bucket string, replicas int, lost func()) *Store {
	return &Store{kv: buckets.New(js, buckets.Config{
		Name: bucket, Description: "natsid: high-water marks of the tags", Replicas: replicas, Lost: lost,
	})}
}

// Open opens the bucket, making it if there is none, as any other call would.
// mismatch says how an existing one differs from what was asked.
func (s *Store) Open(ctx context.Context) (mismatch string, err error) { return s.kv.Open(ctx) }

// Trouble returns why the bucket is not open, or nil if it is.
func (s *Store) Trouble() error { return s.kv.Trouble() }

// Load implements [segment.Store].
func (s *Store) Load(ctx context.Context, tag string, n, floor int64) (l segment.Loaded, err error) {
	err = s.change(ctx, tag, func(e *entry) (err error) {
		if e.Disabled {
			return segment.ErrDisabled
		}
		l.Range, err = segment.NextRange(e.Mark, floor, max(n, e.Step))
		e.Mark, l.Step, l.Least = l.End, e.Step, e.Least
		return err
	})
	if err != nil {
		return segment.Loaded{}, err
	}
	return l, nil
}

// Create implements [segment.Store].
func (s *Store) Create(ctx context.Context, t segment.Tag, revive bool) (segment.Tag, error) {
	if err := t.Validate(); err != nil {
		return segment.Tag{}, err
	}
	create := s.kv.Create
	if !revive {
		// On first use, that is. What is left of a tag that was taken away stops
		// it. In a bucket that was made again a tag may be gone
		// that other workers loaded: its operator must say where it goes on.
		if original, err := s.kv.IsOriginal(ctx); err != nil {
			return segment.Tag{}, wrap(t.Name, err)
		} else if !original {
			return segment.Tag{}, wrap(t.Name, segment.ErrUnknownTag)
		}
		create = s.kv.CreateFirst
	}
	e := entry{Mark: t.MaxID, Step: t.Step, Description: t.Description}
	_, err := create(ctx, t.Name, e.encode())
	if errors.Is(err, jetstream.ErrKeyDeleted) {
		err = segment.ErrUnknownTag
	}
	if errors.Is(err, jetstream.ErrKeyExists) {
		err = s.change(ctx, t.Name, func(old *entry) error {
			if !old.Disabled {
				return segment.ErrExists
			}
			if !revive {
				return segment.ErrDisabled
			}
			// What was loaded before it was deleted is not handed out any more.
			e.Mark = max(e.Mark, old.Mark)
			e.Least = e.Mark
			*old = e
			return nil
		})
		if errors.Is(err, segment.ErrUnknownTag) && !errors.Is(err, segment.ErrDisabled) {
			// Somebody's write of it is under way, and not to be read yet.
			err = segment.ErrExists
		}
	}
	if err != nil {
		return segment.Tag{}, wrap(t.Name, err)
	}
	return e.tag(t.Name, time.Now()), nil
}

// Update implements [segment.Store]. It is one compare-and-set, as a load is:
// loads that read the mark before find themselves overtaken.
func (s *Store) Update(ctx context.Context, tag string, c segment.Change) (t segment.Tag, err error) {
	err = s.change(ctx, tag, func(e *entry) (err error) {
		if e.Disabled {
			return segment.ErrDisabled
		}
		if t, err = c.Apply(e.tag(tag, time.Now()), math.MaxInt64); err == nil {
			e.Mark, e.Least, e.Step, e.Description = t.MaxID, t.Least, t.Step, t.Description
		}
		return err
	})
	if err != nil {
		return segment.Tag{}, err
	}
	return t, nil
}

// Look implements [segment.Store].
func (s *Store) Look(ctx context.Context, tag string) (segment.Tag, error) {
	kve, err := s.kv.Get(ctx, tag)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		err = segment.ErrUnknownTag
	}
	if err != nil {
		return segment.Tag{}, wrap(tag, err)
	}
	e, err := decode(kve)
	if err != nil {
		return segment.Tag{}, err
	}
	return e.tag(tag, kve.Created()), nil
}

// Poll implements [segment.Store]. An entry that somebody took away leaves a
// marker. One that is not there without a marker went with a bucket that was
// lost: it tells nothing of the tag. Nor does a damaged one.
func (s *Store) Poll(ctx context.Context, see func(segment.Listing)) error {
	all, removed, err := s.kv.AllAndRemoved(ctx)
	if err != nil {
		return fmt.Errorf("kvstore: list: %w", err)
	}
	tags := make([]segment.Tag, 0, len(all))
	for name, kve := range all {
		if e, err := decode(kve); err == nil {
			tags = append(tags, e.tag(name, kve.Created()))
		}
	}
	see(segment.Listing{Tags: tags, Removed: func(tag string) bool { return removed[tag] }})
	return nil
}

// Delete implements [segment.Store].
func (s *Store) Delete(ctx context.Context, tag string) error {
	return s.change(ctx, tag, func(e *entry) error {
		e.Disabled = true
		return nil
	})
}

// Mark implements [segment.Marks].
func (s *Store) Mark(ctx context.Context, tag string) (segment.Mark, error) {
	kve, err := s.kv.Get(ctx, tag)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return segment.Mark{}, nil
	}
	if err != nil {
		return segment.Mark{}, wrap(tag, err)
	}
	e, err := decode(kve)
	if err != nil {
		return segment.Mark{}, err
	}
	return e.mark(kve), nil
}

// SetMark implements [segment.Marks].
func (s *Store) SetMark(ctx context.Context, tag string, m segment.Mark) (err error) {
	e := entry{Mark: m.High, Seen: m.Seen, Least: m.Least, Step: max(1, m.Step), Description: m.Description, Disabled: m.Disabled}
	if m.Revision == 0 {
		_, err = s.kv.Create(ctx, tag, e.encode())
	} else {
		_, err = s.kv.Update(ctx, tag, e.encode(), m.Revision)
	}
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists) {
		return segment.ErrMarkMoved
	}
	if errors.Is(err, jetstream.ErrInvalidKey) {
		return segment.ErrInvalid
	}
	return wrap(tag, err)
}

// AllMarks implements [segment.Marks].
func (s *Store) AllMarks(ctx context.Context) (map[string]segment.Mark, error) {
	all, err := s.kv.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("kvstore: %w", err)
	}
	marks := make(map[string]segment.Mark, len(all))
	for tag, kve := range all {
		// A damaged entry has no mark that could be raised; loads name it.
		if e, err := decode(kve); err == nil {
			marks[tag] = e.mark(kve)
		}
	}
	return marks, nil
}

// mark returns the entry as the guard of a table has it.
func (e entry) mark(kve jetstream.KeyValueEntry) segment.Mark {
	return segment.Mark{
		High: e.Mark, Seen: e.Seen, Least: e.Least, Step: e.Step, Description: e.Description, Disabled: e.Disabled,
		Revision: kve.Revision(), Updated: kve.Created().UTC(),
	}
}

// change replaces the entry of a tag by what f makes of it, by compare-and-set.
// If somebody else was faster it reads anew and calls f again. Any error but
// f's own means that the outcome is not known.
func (s *Store) change(ctx context.Context, tag string, f func(*entry) error) error {
	attempt := func() error {
		kve, err := s.kv.Get(ctx, tag)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return backoff.Permanent(segment.ErrUnknownTag)
		}
		if err != nil {
			return backoff.Permanent(err)
		}
		e, err := decode(kve)
		if err == nil {
			err = f(&e)
		}
		if err != nil {
			return backoff.Permanent(err)
		}
		_, err = s.kv.Update(ctx, tag, e.encode(), kve.Revision())
		if errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists) {
			return err // somebody else was faster
		}
		if err != nil {
			return backoff.Permanent(err)
		}
		return nil
	}
	// Pauses spread those who race for one tag; one of them wins each round.
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(500*time.Microsecond),
		backoff.WithMaxInterval(20*time.Millisecond),
		backoff.WithMaxElapsedTime(0))
	return wrap(tag, backoff.Retry(attempt, backoff.WithContext(pauses, ctx)))
}

func wrap(tag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kvstore: tag %s: %w", tag, err)
}

func (e entry) encode() []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // cannot be: integers, strings and a bool
	}
	return b
}

func decode(kve jetstream.KeyValueEntry) (e entry, err error) {
	err = json.Unmarshal(kve.Value(), &e)
	if err == nil && (e.Mark < 1 || e.Step < 1) {
		err = errors.New("mark and step must be positive")
	}
	if err != nil {
		return entry{}, fmt.Errorf("kvstore: the entry %s of bucket %s is damaged, mend it by hand: %w", kve.Key(), kve.Bucket(), err)
	}
	return e, nil
}

func (e entry) tag(name string, updated time.Time) segment.Tag {
	return segment.Tag{
		Name: name, Step: e.Step, MaxID: e.Mark, Least: e.Least, Description: e.Description, Updated: updated.UTC(), Disabled: e.Disabled,
	}
}
