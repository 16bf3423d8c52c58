package kvregistry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/workerid"
)

// Stored returns the deployment that the registry has, and when it was written; a zero one if it has none. It makes
// none.
func (r *Registry) Stored(ctx context.Context) (d workerid.Deployment, made time.Time, err error) {
	e, err := r.history.Get(ctx, deploymentKey)
	if errors.Is(err, buckets.ErrNoKey) {
		return workerid.Deployment{}, time.Time{}, nil
	}
	if err != nil {
		return workerid.Deployment{}, time.Time{}, err
	}
	if err := json.Unmarshal(e.Value, &d); err != nil {
		return workerid.Deployment{}, time.Time{}, fmt.Errorf("kvregistry: key %s of bucket %s is damaged: %w",
			deploymentKey, r.cfg.History, err)
	}
	return d, e.Created, nil
}

// Note returns what the registry remembers beside its records under a key that is no number, and its revision; revision
// 0 if nothing was ever written there.
func (r *Registry) Note(ctx context.Context, key string) (value []byte, revision uint64, err error) {
	e, err := r.history.Get(ctx, key)
	if errors.Is(err, buckets.ErrNoKey) {
		return nil, 0, nil
	}
	return e.Value, e.Revision, err
}

// SetNote replaces a note of that revision, or returns [workerid.ErrConflict].
func (r *Registry) SetNote(ctx context.Context, key string, value []byte, revision uint64) (err error) {
	if revision == 0 {
		_, err = r.history.Create(ctx, key, value)
	} else {
		_, err = r.history.Update(ctx, key, value, revision)
	}
	if errors.Is(err, buckets.ErrKeyExists) || errors.Is(err, buckets.ErrRevision) {
		return workerid.ErrConflict
	}
	return err
}
