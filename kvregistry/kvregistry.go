// Package kvregistry keeps worker numbers and heartbeats in JetStream KV: a
// [workerid.Registry] on two buckets, one for ever, one that forgets.
package kvregistry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/workerid"
)

// Config says where the registry lies.
type Config struct {
	// History is the bucket of the records: never forgotten.
	History string
	// Workers is the bucket of the heartbeats, each forgotten LeaseTTL after
	// it was put.
	Workers  string
	LeaseTTL time.Duration
	Replicas int
	// WorkerSubject returns the subject on which worker w says who it is.
	WorkerSubject func(w int) string
}

// Options returns the options that the registry's connection needs: it fails
// at once while disconnected, since a write buffered until the connection is
// back would land long after its caller has given up on it; and it notices a
// server that hangs within seconds.
func Options() []nats.Option {
	return []nats.Option{
		nats.ReconnectBufSize(-1),
		nats.PingInterval(1500 * time.Millisecond),
		nats.MaxPingsOutstanding(2),
		nats.MaxReconnects(-1),
	}
}

// A Registry is a [workerid.Registry] in JetStream KV. Its buckets are opened
// by the first call that can; until then all calls but Ask, which needs no
// JetStream, return why they cannot be.
type Registry struct {
	cfg      Config
	nc       *nats.Conn
	history  *buckets.Bucket
	workers  *buckets.Bucket
	failures atomic.Int32 // heartbeats that failed in a row
}

var _ workerid.Registry = (*Registry)(nil)

// deploymentKey is the key of the deployment among the records.
const deploymentKey = "deployment"

// New returns a registry. The connection of js should have been made with
// [Options] and must not carry requests of users.
func New(js jetstream.JetStream, cfg Config) *Registry {
	return &Registry{
		cfg: cfg,
		nc:  js.Conn(),
		history: buckets.New(js, buckets.Config{
			Name: cfg.History, Description: "natsid: worker numbers, for ever", Replicas: cfg.Replicas,
		}),
		workers: buckets.New(js, buckets.Config{
			Name: cfg.Workers, Description: "natsid: heartbeats of the workers", TTL: cfg.LeaseTTL, Replicas: cfg.Replicas,
		}),
	}
}

// Open opens the buckets, making those that are missing, as any other call
// would. mismatch says how existing ones differ from what was asked.
func (r *Registry) Open(ctx context.Context) (mismatch string, err error) {
	mismatch, err = r.history.Open(ctx)
	if err != nil {
		return "", err
	}
	other, err := r.workers.Open(ctx)
	return strings.Trim(mismatch+"; "+other, "; "), err
}

// Deployment implements [workerid.Registry].
func (r *Registry) Deployment(ctx context.Context, d workerid.Deployment) (workerid.Deployment, error) {
	_, err := r.history.Create(ctx, deploymentKey, encode(d))
	if err == nil {
		return d, nil
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return workerid.Deployment{}, err
	}
	kve, err := r.history.Get(ctx, deploymentKey)
	if err != nil {
		return workerid.Deployment{}, err
	}
	var have workerid.Deployment
	if err := json.Unmarshal(kve.Value(), &have); err != nil {
		return workerid.Deployment{}, fmt.Errorf("kvregistry: the entry %s of bucket %s is damaged, mend it by hand: %w", deploymentKey, r.cfg.History, err)
	}
	return have, nil
}

// Records implements [workerid.Registry].
func (r *Registry) Records(ctx context.Context) (map[int]workerid.Record, error) {
	return all(ctx, r.history, record)
}

// Record implements [workerid.Registry]. The bucket's leader answers, as far
// as this package has made the bucket.
func (r *Registry) Record(ctx context.Context, w int) (workerid.Record, error) {
	kve, err := r.history.Get(ctx, strconv.Itoa(w))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return workerid.Record{}, workerid.ErrNoRecord
	}
	if err != nil {
		return workerid.Record{}, err
	}
	return record(kve), nil
}

// record reads an entry. One that cannot be read, or has no token, is a zero
// record at its revision: unreadable is not the same as free.
func record(kve jetstream.KeyValueEntry) workerid.Record {
	var rec workerid.Record
	if err := json.Unmarshal(kve.Value(), &rec); err != nil || rec.Token == "" {
		rec = workerid.Record{}
	}
	rec.Revision = kve.Revision()
	return rec
}

// Write implements [workerid.Registry].
func (r *Registry) Write(ctx context.Context, w int, rec workerid.Record) (revision uint64, err error) {
	if rec.Revision == 0 {
		revision, err = r.history.Create(ctx, strconv.Itoa(w), encode(rec))
	} else {
		revision, err = r.history.Update(ctx, strconv.Itoa(w), encode(rec), rec.Revision)
	}
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return 0, workerid.ErrConflict
	}
	return revision, err
}

// Time implements [workerid.Registry]. A failure counts as that of a heartbeat,
// which begins with it; see [Registry.Report].
func (r *Registry) Time(ctx context.Context) (ms int64, err error) {
	t, err := r.workers.Time(ctx)
	if err != nil {
		r.failed(err)
		return 0, err
	}
	return t.UnixMilli(), nil
}

// Report implements [workerid.Registry]. A second heartbeat that fails in a
// row, here or in Time, makes the connection anew: the server behind it may
// hang without closing it.
func (r *Registry) Report(ctx context.Context, w int, l workerid.Heartbeat) error {
	if _, err := r.workers.Put(ctx, strconv.Itoa(w), encode(l)); err != nil {
		r.failed(err)
		return err
	}
	r.failures.Store(0)
	return nil
}

// failed counts a heartbeat that failed.
func (r *Registry) failed(err error) {
	// A caller that gave up says nothing about the connection.
	if !errors.Is(err, context.Canceled) && r.failures.Add(1) == 2 {
		r.failures.Store(0)
		// It fails only on a connection that is closed or being made anew.
		_ = r.nc.ForceReconnect()
	}
}

// Heartbeats implements [workerid.Registry].
func (r *Registry) Heartbeats(ctx context.Context) (map[int]workerid.Heartbeat, error) {
	return all(ctx, r.workers, func(kve jetstream.KeyValueEntry) (l workerid.Heartbeat) {
		// An unreadable heartbeat is a heartbeat: somebody is alive.
		_ = json.Unmarshal(kve.Value(), &l)
		l.At = kve.Created().UnixMilli()
		return l
	})
}

// Leave implements [workerid.Registry].
func (r *Registry) Leave(ctx context.Context, w int) error {
	return r.workers.Purge(ctx, strconv.Itoa(w))
}

// Ask implements [workerid.Registry]. If no worker subscribes to the subject
// the server says so at once.
func (r *Registry) Ask(ctx context.Context, w int) (who workerid.Who, err error) {
	msg, err := r.nc.RequestWithContext(ctx, r.cfg.WorkerSubject(w), nil)
	if errors.Is(err, nats.ErrNoResponders) {
		return workerid.Who{}, workerid.ErrNoWorker
	}
	if err == nil {
		err = json.Unmarshal(msg.Data, &who)
	}
	return who, err
}

// all returns the entries whose keys are worker numbers.
func all[T any](ctx context.Context, b *buckets.Bucket, read func(jetstream.KeyValueEntry) T) (map[int]T, error) {
	entries, err := b.All(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[int]T, len(entries))
	for key, kve := range entries {
		if w, err := strconv.Atoi(key); err == nil {
			out[w] = read(kve)
		}
	}
	return out, nil
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot be: strings and integers
	}
	return b
}
