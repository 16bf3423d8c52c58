package kvstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// read returns an existing tag, or [segment.ErrUnknownTag]. It reads the entry before the row: Seen in the entry is a
// max_id of the row from before, so a row with a lower max_id has gone back to an earlier state.
func (s *Store) read(ctx context.Context, tag string) (t state, err error) {
	if t, err = s.readMark(ctx, tag); err != nil {
		return t, err
	}
	if t.Disabled {
		s.kept.drop(tag)
	}
	exists := !t.isMissing()
	if s.cfg.Table != nil {
		var row segment.Row
		row, err = s.cfg.Table.Row(ctx, tag)
		t.beside(&row, s.limit())
		exists = true
	}
	if err == nil && (!exists || t.isUnmade()) {
		err = segment.ErrUnknownTag
	}
	return t, err
}

// readMark returns the state of a tag without its row. For a tag without an entry the state has the mark at which the
// tag would begin.
func (s *Store) readMark(ctx context.Context, tag string) (t state, err error) {
	if err := refused(tag); err != nil {
		return state{}, err
	}
	t.kve, err = s.kv.Get(ctx, tag)
	if err == nil {
		t.entry, err = decode(s.cfg.Bucket, t.kve)
	} else if errors.Is(err, buckets.ErrNoKey) {
		err = nil
	}
	var id era.Identity
	if err == nil {
		id, err = s.eras(ctx)
	}
	if err == nil {
		err = t.in(id, s.limit())
	}
	return t, err
}

// limit returns the highest mark that the store can hold.
func (s *Store) limit() int64 {
	if s.cfg.Table == nil {
		return math.MaxInt64
	}
	return s.cfg.Table.Limit()
}

// eras returns the registry's identity, whose eras say how marks are read: that of Config.Eras or, if it is nil, the
// bucket's. Call eras after reading entries, so that it has their eras. A bucket without an identity has none.
func (s *Store) eras(ctx context.Context) (era.Identity, error) {
	if s.cfg.Eras != nil {
		return s.cfg.Eras(), nil
	}
	id, err := s.readIdentity(ctx)
	if errors.Is(err, era.ErrNoIdentity) || errors.Is(err, era.ErrIdentity) {
		err = nil
	}
	return id, err
}

func (s *Store) readIdentity(ctx context.Context) (era.Identity, error) {
	kve, err := s.kv.Get(ctx, era.Key)
	if errors.Is(err, buckets.ErrNoKey) {
		return era.Identity{}, era.ErrNoIdentity
	}
	if err != nil {
		return era.Identity{}, err
	}
	return era.Decode(kve.Value)
}

// change replaces the entry of a tag by what f makes of it, by compare-and-set. If another write came first, change
// reads the entry again and calls f again. The error wraps [segment.ErrUncertain] if the write may have landed; after
// any other error nothing was changed.
func (s *Store) change(ctx context.Context, tag string, f func(*entry) error) error {
	return wrap(tag, jitter.Race(ctx, isOvertaken, func() (uint64, error) {
		was, err := s.read(ctx, tag)
		if err != nil {
			return 0, err
		}
		e := was.now()
		if err = f(&e); err == nil {
			_, err = s.replace(ctx, tag, was, e)
		}
		return was.kve.Revision, err
	}))
}

// replace writes e in place of the entry in the state was. It returns the new state, whose revision is 0 if unknown.
//
// Law: the written mark is at least the highest max_id ever read from the tag's row, so IDs that Leaf took stay taken.
func (s *Store) replace(ctx context.Context, tag string, was state, e entry) (state, error) {
	try := newCAS(was.kve.Revision, was.Token)
	e.Mark, e.Token = max(1, e.Mark, e.Seen), try.token
	s.sign(&e, was)
	revision, err := s.write(ctx, tag, e.encode(), was.kve.Revision)
	err = s.outcome(ctx, tag, try, written(err))
	s.raised(tag, was, e.Mark, err)
	e.raw = e.Mark
	return state{kve: buckets.Entry{Revision: revision, Created: time.Now()}, entry: e, row: was.row}, err
}

// write writes the entry of a tag if the entry's revision is last; last is 0 if the tag has no entry.
func (s *Store) write(ctx context.Context, tag string, value []byte, last uint64) (revision uint64, err error) {
	if err := refused(tag); err != nil {
		return 0, err
	}
	if last == 0 {
		return s.kv.Create(ctx, tag, value) //mutant:first-mark
	}
	return s.kv.Update(ctx, tag, value, last)
}

// sign sets the run of e, an entry that is to replace the entry in the state was, if e raises the mark. It extends the
// run of was if this process wrote that, too.
func (s *Store) sign(e *entry, was state) {
	if e.Mark > was.raw {
		e.Run = segment.Run{By: s.cfg.Process(), From: max(1, was.raw), To: e.Mark}
		if was.Run.By == e.Run.By {
			e.Run.From = was.Run.From
		}
	}
}

// raised calls Config.Raised if a write over the state was, which ended with err, has raised the mark to the parameter
// to, or may have raised it.
func (s *Store) raised(tag string, was state, to int64, err error) {
	if was.raw >= to || err != nil && !errors.Is(err, segment.ErrUncertain) {
		return
	}
	before := was.Run
	if before.By == s.cfg.Process() { // which records it itself
		before = segment.Run{}
	}
	s.cfg.Raised(tag, was.raw, to, before)
}

// outcome returns the final error of a write that ended with err. If err does not say whether the write landed,
// outcome reads the entry, which has the write's token if no other write has landed since.
func (s *Store) outcome(ctx context.Context, tag string, try cas, err error) error {
	if !errors.Is(err, segment.ErrUncertain) {
		return err
	}
	now, again := s.readMark(ctx, tag)
	if again != nil {
		return err
	}
	if try.outcome(now.kve.Revision, now.Token) == landed {
		return nil
	}
	return err
}

// refused returns an error for a tag whose name is one of natsid's own keys, which must not be used as a tag's. No
// request can have such a name, but a row of a table can.
func refused(tag string) error {
	if buckets.IsOwn(tag) {
		return fmt.Errorf("%w: %w", segment.ErrInvalid, buckets.ErrInvalidKey)
	}
	return nil
}

// written adds [segment.ErrUncertain] to the error of a write, unless the error says that nothing was written.
func written(err error) error {
	certain := []error{buckets.ErrRevision, buckets.ErrKeyExists, buckets.ErrKeyRemoved, buckets.ErrNoAnswer,
		buckets.ErrInvalidKey, segment.ErrUnknownTag}
	if err == nil || slices.ContainsFunc(certain, func(c error) bool { return errors.Is(err, c) }) {
		return err
	}
	return fmt.Errorf("%w: %w", segment.ErrUncertain, err)
}

// errOvertaken says that another worker has changed the tag's entry or row since this worker read it.
var errOvertaken = errors.New("kvstore: overtaken by another worker")

// isOvertaken reports whether a write was refused because another worker had written first.
func isOvertaken(err error) bool {
	return errors.Is(err, buckets.ErrRevision) || errors.Is(err, buckets.ErrKeyExists) || errors.Is(err, errOvertaken)
}

func wrap(tag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kvstore: tag %s: %w", tag, err)
}
