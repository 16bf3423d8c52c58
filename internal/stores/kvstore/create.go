package kvstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/attempt"
	"github.com/natsid/natsid/segment"
)

// Create implements [segment.Store].
func (s *Store) Create(ctx context.Context, t segment.Tag, revive bool) (segment.Tag, error) {
	if err := t.Validate(); err != nil {
		return segment.Tag{}, err
	}
	try := attempt.New(0, "")
	e := entry{Mark: t.MaxID, Step: t.Step, Description: t.Description, Tokens: try.Tokens(),
		Rules: t.Rules}
	w := segment.Write{How: segment.ByCreate, After: e.Mark}
	var err error
	w.Written, err = s.createKey(ctx, t.Name, e, revive)
	err = s.outcome(ctx, t.Name, try, err)
	s.wrote(t.Name, w, err)
	if errors.Is(err, buckets.ErrKeyExists) {
		err = s.revive(ctx, t.Name, &e, revive)
	}
	if err != nil {
		return segment.Tag{}, wrap(t.Name, err)
	}
	return e.tag(t.Name, time.Now()), nil
}

// createKey creates the key of a tag. Without revive, which is on first use, it creates none for a tag that was
// removed, of which a delete marker is left, and none in a bucket that is not original: other workers may have loaded
// the tag, and its operator must say where it continues.
//
// A bucket may be lost and made again between the look at its identity and the write. So the entry names the era,
// and the first load looks again: see read.
func (s *Store) createKey(ctx context.Context, tag string, e entry, revive bool) (revision uint64, err error) {
	if err := s.refusedFor(tag); err != nil {
		return 0, err
	}
	look, create := s.ids.era, s.kv.CreateFirst //mutant:original
	if revive {
		look, create = s.ids.ownEra, s.kv.Create
	}
	era, err := look(ctx)
	if err != nil {
		return 0, err
	}
	e.First = era
	revision, err = create(ctx, tag, e.encode())
	if errors.Is(err, buckets.ErrKeyRemoved) {
		err = segment.ErrUnknownTag
	}
	return revision, written(err)
}

// revive enables a disabled tag with the step and description of e, above its old mark, which e gets too. It does the
// same with a tag that was created in a bucket that is lost.
func (s *Store) revive(ctx context.Context, tag string, e *entry, revive bool) error {
	err := s.change(ctx, tag, segment.ByRevive, func(old *entry) error {
		if !old.Disabled {
			return segment.ErrExists
		}
		if !revive {
			return segment.ErrDisabled
		}
		t, err := old.tag(tag, time.Now()).Revive(e.tag(tag, time.Now()), math.MaxInt64)
		if err != nil {
			return err
		}
		old.set(t)
		*e = *old
		return nil
	})
	if revive && errors.Is(err, errOfLostBucket) {
		return s.replaceLost(ctx, tag, e)
	}
	if errors.Is(err, segment.ErrUnknownTag) && !errors.Is(err, segment.ErrDisabled) {
		return segment.ErrExists // another worker's write is under way, and cannot be read yet
	}
	return err
}

// replaceLost puts e in the place of an entry that names another era. No ID of that entry was ever issued, since
// no load of it succeeds; its mark is kept all the same if it is higher.
func (s *Store) replaceLost(ctx context.Context, tag string, e *entry) error {
	return wrap(tag, jitter.Race(ctx, isOvertaken, func() (uint64, error) {
		kve, err := s.kv.Get(ctx, tag)
		if err != nil {
			return 0, err
		}
		old, err := decode(s.cfg.Bucket, kve)
		if err != nil {
			return 0, err
		}
		if err = s.confirmFirst(ctx, &old); !errors.Is(err, errOfLostBucket) {
			return 0, errors.Join(err, segment.ErrExists) // another operator was faster
		}
		era, err := s.ids.ownEra(ctx)
		if err != nil {
			return 0, err
		}
		e.First, e.Mark, e.Least = era, max(e.Mark, old.Mark), old.Least
		return kve.Revision, s.replace(ctx, tag, segment.ByCreate, kve, old, *e)
	}))
}

// errOfLostBucket says that an entry was written for a bucket that is lost, and landed in the one that replaced it.
var errOfLostBucket = fmt.Errorf("%w: it was created in a bucket that is lost; "+
	"create it again, with a start above all its IDs", segment.ErrUnknownTag)
