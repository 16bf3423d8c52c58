package kvstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
)

// Kind is the role of a bucket of marks. Workers of one namespace share one kind.
type Kind string

// The kinds.
const (
	Alone   Kind = "kv"    // the marks are the store
	Guarded Kind = "mysql" // the marks guard a table
)

// Check reads the identity of the bucket, and writes it if the bucket is the first of its name. It returns
// [era.ErrIdentity] or [era.ErrKind] for a bucket that this store must not use, and [era.ErrNoIdentity] for one that
// was purged, or made again after it was lost.
func (s *Store) Check(ctx context.Context) (era.Identity, error) {
	id, err := s.readIdentity(ctx)
	if errors.Is(err, era.ErrNoIdentity) {
		id, err = s.await(ctx)
	}
	if err == nil {
		err = s.cfg.compare(id)
	}
	if err == nil || errors.Is(err, era.ErrKind) {
		s.checked.Store(&err)
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

// compare compares an identity with the kind of a store.
func (c Config) compare(id era.Identity) error {
	if have := Kind(id.Kind); have != c.Kind {
		return fmt.Errorf("%w: bucket %s is of kind %s, this worker of kind %s; start it %s, or move the tags as "+
			"docs/operations.md says", era.ErrKind, c.Bucket, have, c.Kind, have.how())
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

// How often, and at which interval, a worker reads the identity that another worker is about to write.
const (
	foundingTries = 500
	foundingPause = 20 * time.Millisecond
)

// await waits for the identity, which the worker that has just made the bucket is about to write. It returns it, or
// [era.ErrNoIdentity].
//
// Law: a bucket into which nothing was written counts as new. So if MayFound knows no other bucket of the name, this
// process may write the identity: the process that made the bucket may have ended before it did.
func (s *Store) await(ctx context.Context) (era.Identity, error) {
	for range foundingTries {
		state, err := s.kv.Look(ctx)
		if err != nil && !errors.Is(err, buckets.ErrUnfit) {
			return era.Identity{}, err
		}
		if state.Mine || state.Untouched() {
			s.foundNow(ctx, state)
		}
		id, err := s.readIdentity(ctx)
		if !errors.Is(err, era.ErrNoIdentity) || !state.Founding {
			return id, err
		}
		if err := jitter.Sleep(ctx, foundingPause); err != nil {
			return era.Identity{}, err
		}
	}
	return era.Identity{}, era.ErrNoIdentity
}

// foundNow writes the identity of a bucket that this process may found. If that fails, the next check tries again.
func (s *Store) foundNow(ctx context.Context, state buckets.State) {
	if s.cfg.MayFound == nil || s.cfg.MayFound(ctx) == nil {
		_ = s.kv.Found(ctx, state, era.Key, era.Found(string(s.cfg.Kind), state.Created).Encode())
	}
}

// refused returns why the bucket must not be used, nil if it may.
func (s *Store) refused() error {
	if err := s.checked.Load(); err != nil {
		return *err
	}
	return nil
}
