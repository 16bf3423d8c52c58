package kvstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/stores/attempt"
	"github.com/natsid/natsid/segment"
)

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
	e, err := decode(s.cfg.Bucket, kve)
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
	return s.ids.refused()
}

// confirmFirst makes the entry of a tag that was just created an ordinary one, if it lies in the bucket that was looked
// at then.
func (s *Store) confirmFirst(ctx context.Context, e *entry) error {
	if e.First == "" {
		return nil
	}
	era, err := s.ids.ownEra(ctx)
	if err != nil {
		return err
	}
	if era != e.First {
		return errOfLostBucket
	}
	e.First = ""
	return nil
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
