package kvstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/lineage"
	"github.com/natsid/natsid/segment"
)

// Kind is what a bucket of marks is to its workers. Workers of one namespace share one kind.
type Kind string

// The kinds.
const (
	Alone   Kind = "kv"    // the marks are the store
	Guarded Kind = "mysql" // the marks guard a table
)

// identityKey is the key of the identity, which says which registry of tags a bucket holds. It is written when the
// bucket is made as the first of its name. Package lineage guards it.
//
// A bucket without one was purged, or made again after it was lost. What was in it is unknown, so any tag could be one
// that other workers have loaded, and no tag is made on first use.
const identityKey = buckets.Own

// Check reads the identity of the bucket. It returns [lineage.ErrIdentity] or [lineage.ErrKind] for a bucket that this
// store must not use, and [lineage.ErrNoIdentity] for one in which no tag is made on first use.
func (s *Store) Check(ctx context.Context) (lineage.Identity, error) { return s.ids.check(ctx) }

// An identityCheck reads the identity of the bucket, writes it into one that was just made, and keeps whether the
// bucket is of this store's kind.
type identityCheck struct {
	cfg     Config
	kv      *buckets.Bucket
	checked atomic.Pointer[error] // what check found of the kind; nil before the first
}

// check is [Store.Check].
func (s *identityCheck) check(ctx context.Context) (lineage.Identity, error) {
	id, err := s.read(ctx)
	if errors.Is(err, lineage.ErrNoIdentity) {
		id, err = s.await(ctx)
	}
	if err == nil {
		err = s.cfg.compare(id)
	}
	if err == nil || errors.Is(err, lineage.ErrKind) {
		s.checked.Store(&err)
	}
	return id, err
}

func (s *identityCheck) read(ctx context.Context) (lineage.Identity, error) {
	kve, err := s.kv.Get(ctx, identityKey)
	if errors.Is(err, buckets.ErrNoKey) {
		return lineage.Identity{}, lineage.ErrNoIdentity
	}
	if err != nil {
		return lineage.Identity{}, err
	}
	return lineage.DecodeIdentity(kve.Value)
}

// compare compares an identity with the kind of a store.
func (c Config) compare(id lineage.Identity) error {
	if have := Kind(id.Kind); have != c.Kind {
		return fmt.Errorf("%w: bucket %s is of kind %s, this worker of kind %s; start it %s, or move the tags as "+
			"docs/operations.md says", lineage.ErrKind, c.Bucket, have, c.Kind, have.how())
	}
	return nil
}

// how says how a worker of a kind is started.
func (k Kind) how() string {
	if k == Guarded {
		return "with --mysql"
	}
	return "without --mysql"
}

// founding is how often and how long a worker waits for the identity that another one is about to write.
const (
	foundingTries = 500
	foundingPause = 20 * time.Millisecond
)

// await returns the identity that the worker which has just made the bucket is about to write, or
// [lineage.ErrNoIdentity].
func (s *identityCheck) await(ctx context.Context) (lineage.Identity, error) {
	for range foundingTries {
		state, err := s.kv.Look(ctx)
		if err != nil && !errors.Is(err, buckets.ErrUnfit) {
			return lineage.Identity{}, err
		}
		if state.Untouched() {
			s.foundNow(ctx, state)
		}
		id, err := s.read(ctx)
		if !errors.Is(err, lineage.ErrNoIdentity) || !state.Founding {
			return id, err
		}
		if err := jitter.Sleep(ctx, foundingPause); err != nil {
			return lineage.Identity{}, err
		}
	}
	return lineage.Identity{}, lineage.ErrNoIdentity
}

// foundNow gives a bucket that this process has just made its identity. Where that fails, a worker's next check of the
// registry tries again.
func (s *identityCheck) foundNow(ctx context.Context, state buckets.State) {
	if s.cfg.MayFound == nil || s.cfg.MayFound(ctx) == nil {
		_ = s.kv.Found(ctx, state, identityKey, lineage.Found(string(s.cfg.Kind), state.Created).Encode())
	}
}

// refused returns why the bucket must not be used, nil if it may.
func (s *identityCheck) refused() error {
	if err := s.checked.Load(); err != nil {
		return *err
	}
	return nil
}

// era returns the present era, in which a tag is made on first use.
//
// Law: a tag that has no entry begins at 1, so it must never have been loaded. That is known of a bucket whose identity
// says so: it is the original one, no incident is open, and after the last one an operator has confirmed its tags.
func (s *identityCheck) era(ctx context.Context) (string, error) {
	id, err := s.check(ctx)
	switch {
	case errors.Is(err, lineage.ErrNoIdentity):
		return "", fmt.Errorf("%w: %w", segment.ErrUnknownTag, err)
	case err != nil:
		return "", err
	case id.Incident != nil || id.Unconfirmed:
		return "", lineage.ErrUnconfirmed
	}
	return id.Era(), nil
}

// ownEra returns the present era, "" if the bucket has none: an operator may create tags there.
func (s *identityCheck) ownEra(ctx context.Context) (string, error) {
	id, err := s.read(ctx)
	if errors.Is(err, lineage.ErrNoIdentity) || errors.Is(err, lineage.ErrIdentity) {
		return "", nil
	}
	return id.Era(), err
}
