package lineage

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
)

// A registry reads and writes the identity: the entry, in the bucket of marks, that says which registry this is and
// in which era. Its exported methods are safe for concurrent use.
//
// Invariant: the identity changes only by compare-and-set. So a worker or operator replaces only the one it has read.
type registry struct {
	cfg   *Config
	last  atomic.Pointer[era.Identity] // the identity as last read or written; nil before
	begun atomic.Pointer[era.Identity] // the identity that Eras returns; nil before
}

// A view is what one check has read of the registry.
type view struct {
	id       era.Identity
	revision uint64 // of the identity, the entry about the registry; 0 if there is none
	missing  error  // why there is no identity to use; nil if there is one
	// stream and unfit describe the bucket's stream, for checks that look at it; otherwise stream is zero.
	stream buckets.Info
	unfit  error
}

// errNewerRead says that an entry has changed since it was read, so the check cannot act on it.
var errNewerRead = errors.New("lineage: another write came first; the next check reads again")

// isRefused reports whether a compare-and-set was refused: the entry has changed since it was read.
func isRefused(err error) bool {
	return errors.Is(err, buckets.ErrRevision) || errors.Is(err, buckets.ErrKeyExists)
}

// Identity returns the identity of the registry (its ID, eras and open incident) as last read; zero before.
func (r *registry) Identity() era.Identity { return valueOf(&r.last) }

// Eras returns the identity (the entry that describes the registry) whose eras say how to read the marks of tags: that
// of the last check that found the registry sound, or completed this worker's stop. Before that it is the identity in
// the worker's memory, or zero.
//
// Law: Eras is not Identity: a deposed leader of the stream may have served that one, without the last eras. Without
// these a mark would be read too low.
func (r *registry) Eras() era.Identity { return valueOf(&r.begun) }

// Throttle returns the limit of each tag's rate, in IDs per second of all workers, as last read; 0 for no limit.
func (r *registry) Throttle() int64 {
	if id := r.last.Load(); id != nil {
		return id.Throttle
	}
	return 0
}

func valueOf(of *atomic.Pointer[era.Identity]) era.Identity {
	if id := of.Load(); id != nil {
		return *id
	}
	return era.Identity{}
}

// read reads the identity: the entry that describes the registry. If thorough is true, it also describes the bucket's
// stream.
func (r *registry) read(ctx context.Context, thorough bool) (view, error) {
	v, err := readView(ctx, r.cfg.Bucket, thorough)
	if err != nil || v.missing != nil {
		return v, err
	}
	if have := v.id.Kind; have != r.cfg.Kind {
		how := map[string]string{era.Alone: "without --mysql", era.Guarded: "with --mysql"}[have]
		return v, fmt.Errorf("%w: they are of kind %s, and this worker is of kind %s; start it %s, or move the tags "+
			"as docs/operations.md says", era.ErrKind, have, r.cfg.Kind, how)
	}
	r.last.Store(&v.id)
	return v, nil
}

// readView reads the identity, the entry that describes the registry. If thorough is true, or there is no usable one,
// readView describes the stream, too.
func readView(ctx context.Context, b Bucket, thorough bool) (v view, err error) {
	switch e, err := b.Get(ctx, era.Key); {
	case errors.Is(err, buckets.ErrNoKey):
		v.missing = era.ErrNoIdentity
	case err != nil:
		return v, fmt.Errorf("the marks cannot be read: %w", err)
	default:
		v.revision = e.Revision
		v.id, v.missing = era.Decode(e.Value)
	}
	if errors.Is(v.missing, era.ErrNewer) {
		return v, v.missing
	}
	if thorough || v.missing != nil {
		v.stream, v.unfit, err = describe(ctx, b)
	}
	return v, err
}

// describe returns the state of the stream; unfit names settings under which entries can vanish, nil for none.
func describe(ctx context.Context, b Bucket) (s buckets.Info, unfit, err error) {
	s, err = b.Look(ctx)
	switch {
	case errors.Is(err, buckets.ErrUnfit):
		unfit, err = err, nil
	case err != nil:
		err = fmt.Errorf("lineage: the stream of the marks cannot be described: %w", err)
	}
	return s, unfit, err
}

// replace replaces the identity (the entry that describes the registry) that a view has read, by compare-and-set, or
// returns errNewerRead.
func (r *registry) replace(ctx context.Context, v *view, next era.Identity) error {
	revision, err := putIdentity(ctx, r.cfg.Bucket, next, v.revision)
	if err != nil {
		return err
	}
	v.id, v.missing, v.revision = next, nil, revision
	r.last.Store(&next)
	return nil
}

// putIdentity replaces the identity if its revision is still the parameter last, or creates it if last is 0. It returns
// errNewerRead if the identity has changed.
func putIdentity(ctx context.Context, b Bucket, id era.Identity, last uint64) (revision uint64, err error) {
	if last == 0 {
		revision, err = b.Create(ctx, era.Key, id.Encode())
	} else {
		revision, err = b.Update(ctx, era.Key, id.Encode(), last)
	}
	if isRefused(err) {
		return 0, errNewerRead
	}
	if err != nil {
		return 0, fmt.Errorf("lineage: the identity cannot be written: %w", err)
	}
	return revision, nil
}
