// Package kvregistry is a [workerid.Registry] on two JetStream KV buckets, one
// permanent and one that expires; it is internal to natsid and may change.
//
//	id_history    key w           the record of worker number w
//	              key deployment  the registry's ID and layout
//	id_workers    key w           the heartbeat of worker number w; expires after LeaseTTL
//
// Records are acknowledged only once they are on disk. A JetStream that is a single server acknowledges heartbeats
// before they are on disk, since each sync would delay all later heartbeats. A lost heartbeat is put again within
// seconds, and uniqueness does not depend on it.
//
// LeaseTTL is set for the whole bucket: a TTL of one key would be dropped by the key's next write. The default of
// 30 s is longer than the 4 to 7 s that an election took after a server was killed.
package kvregistry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/workerid"
)

// Config names the buckets and subjects of a registry. All fields but LeaseTTL, Replicas, Single and Log must be set.
type Config struct {
	// History is the bucket of the records, which are permanent.
	History string
	// Workers is the bucket of the heartbeats.
	Workers string
	// LeaseTTL is how long a heartbeat lasts without being renewed; 30 s if 0.
	LeaseTTL time.Duration
	// Replicas is how many servers keep a copy of each bucket that is created; 0 means 3, or 1 on a single server.
	Replicas int
	// Existing means that missing buckets are not created: calls return [buckets.ErrNoBucket].
	Existing bool
	// Single means that JetStream is known to be a single server: then heartbeats are acknowledged early.
	Single bool
	// WorkerSubject returns the subject on which the worker with number w answers who it is. Negative numbers,
	// which no worker has, must give valid subjects, too.
	WorkerSubject func(w int) string
	Log           *slog.Logger // nil discards
}

// Options returns the options that the registry's connection needs. While disconnected, writes fail at once: a buffered
// write would land long after its caller gave up. Pings detect a server that hangs within 6 s; more frequent pings
// would load an idle server.
func Options() []nats.Option {
	return []nats.Option{
		nats.ReconnectBufSize(-1),
		nats.PingInterval(2 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.MaxReconnects(-1),
	}
}

// A Registry is a [workerid.Registry] in JetStream KV. Each call opens the buckets that are not open yet, or returns
// why they cannot be opened. Ask needs no JetStream.
type Registry struct {
	cfg      Config
	nc       *nats.Conn
	history  *buckets.Bucket
	workers  *buckets.Bucket
	failures atomic.Int32 // heartbeats in a row that failed
}

var _ workerid.Registry = (*Registry)(nil)

// deploymentKey is the key, among the records, of the deployment: the settings that all workers share.
const deploymentKey = "deployment"

// New returns a registry. The connection of js should have [Options], and must not carry the requests of callers.
func New(js jetstream.JetStream, cfg Config) *Registry {
	streams := buckets.OnJetStream(js)
	return &Registry{
		cfg: cfg,
		nc:  js.Conn(),
		history: buckets.New(streams, buckets.Config{
			Name: cfg.History, Description: "natsid: worker numbers, for ever", Replicas: cfg.Replicas,
			Existing: cfg.Existing, Log: cfg.Log,
		}),
		workers: buckets.New(streams, buckets.Config{
			Name: cfg.Workers, Description: "natsid: heartbeats of the workers",
			TTL: cmp.Or(cfg.LeaseTTL, 30*time.Second), Replicas: cfg.Replicas, Existing: cfg.Existing,
			Fleeting: true, Alone: cfg.Single, Log: cfg.Log,
		}),
	}
}

// Open opens the buckets and creates missing ones.
func (r *Registry) Open(ctx context.Context) error {
	return errors.Join(r.history.Open(ctx), r.workers.Open(ctx))
}

// Check reads the settings of the bucket of records. If the bucket forgets records, or takes messages from other
// streams, Check returns [buckets.ErrUnfit], and so do all calls that need records, until a Check finds the
// settings corrected.
func (r *Registry) Check(ctx context.Context) error {
	_, err := r.history.Look(ctx)
	return err
}

// Deployment implements [workerid.Registry].
func (r *Registry) Deployment(ctx context.Context) (workerid.Deployment, error) {
	d, _, err := r.deployment(ctx)
	return d, err
}

func (r *Registry) deployment(ctx context.Context) (d workerid.Deployment, revision uint64, err error) {
	entry, err := r.history.Get(ctx, deploymentKey)
	if errors.Is(err, buckets.ErrNoKey) {
		return workerid.Deployment{}, 0, workerid.ErrNoDeployment
	}
	if err != nil {
		return workerid.Deployment{}, 0, err
	}
	have, err := deployment(entry.Value)
	if err != nil {
		return workerid.Deployment{}, 0, fmt.Errorf("%w: key %s of bucket %s; if it is damaged, put back its id, "+
			"layout, epoch, unit and v with `nats kv put`; if it is of another version, start that version: %w",
			workerid.ErrDamaged, deploymentKey, r.cfg.History, err)
	}
	return have, entry.Revision, nil
}

// SetHolders changes which worker numbers are for programs that draw their own snowflakes. It returns
// [workerid.ErrConflict] if the deployment was changed at the same moment.
//
// Law: the write is a compare-and-set on the revision that was read. So it never replaces another deployment.
func (r *Registry) SetHolders(ctx context.Context, h workerid.Holders) error {
	d, revision, err := r.deployment(ctx)
	if err != nil {
		return err
	}
	d.Holders = h
	_, err = r.history.Update(ctx, deploymentKey, encodeDeployment(d), revision)
	if errors.Is(err, buckets.ErrRevision) {
		return workerid.ErrConflict
	}
	return err
}

// A storedDeployment is the value of the key deployment.
type storedDeployment struct {
	workerid.Deployment
	Version int `json:"v"`
}

func encodeDeployment(d workerid.Deployment) []byte {
	return encode(storedDeployment{d, workerid.Version})
}

func deployment(value []byte) (workerid.Deployment, error) {
	var s storedDeployment
	if err := json.Unmarshal(value, &s); err != nil {
		return workerid.Deployment{}, err
	}
	return s.Deployment, cmp.Or(checkVersion(s.Version), s.Valid())
}

func checkVersion(v int) error {
	if v != workerid.Version {
		return fmt.Errorf("version %d, this natsid reads version %d", v, workerid.Version)
	}
	return nil
}

// Found implements [workerid.Registry]. A leader refuses a write beside another one that a majority of the replicas
// does not have yet, and that may be lost. Until that one can be read, or is lost, Found tries again, for 2 s.
func (r *Registry) Found(ctx context.Context, d workerid.Deployment) error {
	for end := time.Now().Add(2 * time.Second); ; {
		_, err := r.history.Create(ctx, deploymentKey, encodeDeployment(d))
		if !errors.Is(err, buckets.ErrKeyExists) {
			return err
		}
		_, err = r.Deployment(ctx)
		switch {
		case err == nil, errors.Is(err, workerid.ErrDamaged):
			return workerid.ErrConflict
		case !errors.Is(err, workerid.ErrNoDeployment):
			return err
		case time.Now().After(end):
			return fmt.Errorf("%w that can be read, and key %s of bucket %s cannot be written", err, deploymentKey,
				r.cfg.History)
		}
		if err = jitter.Sleep(ctx, jitter.Around(50*time.Millisecond)); err != nil {
			return err
		}
	}
}

// Records implements [workerid.Registry].
func (r *Registry) Records(ctx context.Context) (map[int]workerid.Record, error) {
	return all(ctx, r.history, record)
}

// Record implements [workerid.Registry]. The leader of the bucket's stream answers.
func (r *Registry) Record(ctx context.Context, w int) (workerid.Record, error) {
	kve, err := r.history.Get(ctx, strconv.Itoa(w))
	if errors.Is(err, buckets.ErrNoKey) {
		return workerid.Record{}, workerid.ErrNoRecord
	}
	if err != nil {
		return workerid.Record{}, err
	}
	return record(kve), nil
}

// A storedRecord is the value of a worker number's key in the bucket of the records.
type storedRecord struct {
	workerid.Record
	Version int `json:"v"`
}

func encodeRecord(r workerid.Record) []byte { return encode(storedRecord{r, workerid.Version}) }

// record decodes an entry. An entry that is unreadable, incomplete or of another version is damaged: its window is
// unknown, and so its number is not free.
func record(e buckets.Entry) workerid.Record {
	var s storedRecord
	if json.Unmarshal(e.Value, &s) != nil || checkVersion(s.Version) != nil || s.Valid() != nil {
		s.Record = workerid.Record{Damaged: true}
	}
	s.Revision = e.Revision
	return s.Record
}

// Write implements [workerid.Registry].
func (r *Registry) Write(ctx context.Context, w int, rec workerid.Record) (revision uint64, err error) {
	if rec.Revision == 0 {
		revision, err = r.history.Create(ctx, strconv.Itoa(w), encodeRecord(rec))
	} else {
		revision, err = r.history.Update(ctx, strconv.Itoa(w), encodeRecord(rec), rec.Revision)
	}
	if errors.Is(err, buckets.ErrKeyExists) || errors.Is(err, buckets.ErrRevision) {
		return 0, workerid.ErrConflict
	}
	return revision, err
}

// Time implements [workerid.Registry]. It returns the time of the server that keeps the heartbeats. If that server
// does not answer in half of the time that ctx leaves, Time asks the server that keeps the records, so that windows
// are renewed even without heartbeats. An error counts as a failed heartbeat: see [Registry.Report].
func (r *Registry) Time(ctx context.Context) (ms int64, err error) {
	half, cancel := context.WithTimeout(ctx, halfOf(ctx))
	defer cancel()
	t, err := r.workers.Time(half)
	if err == nil {
		return t.UnixMilli(), nil
	}
	if t, other := r.history.Time(ctx); other == nil {
		r.failures.Store(0) // the connection works
		return t.UnixMilli(), nil
	}
	r.failed(err)
	return 0, err
}

// Report implements [workerid.Registry]. After two failures in a row, here or in Time, the connection reconnects:
// the server may hang and not close the connection.
func (r *Registry) Report(ctx context.Context, w int, h workerid.Heartbeat) error {
	if _, err := r.workers.Put(ctx, strconv.Itoa(w), encode(h)); err != nil {
		r.failed(err)
		return err
	}
	r.failures.Store(0)
	return nil
}

func (r *Registry) failed(err error) {
	// A call that its caller cancelled says nothing about the connection.
	if errors.Is(err, context.Canceled) {
		return
	}
	// Reconnect after two failures, four, eight and so on: a busy server must not have hundreds of workers
	// reconnect all the time.
	if n := r.failures.Add(1); n > 1 && n&(n-1) == 0 {
		// ForceReconnect fails only if the connection is closed or reconnecting.
		_ = r.nc.ForceReconnect()
	}
}

// Heartbeats implements [workerid.Registry].
func (r *Registry) Heartbeats(ctx context.Context) (map[int]workerid.Heartbeat, error) {
	return all(ctx, r.workers, heartbeat)
}

// heartbeat decodes an entry. An unreadable entry counts as a heartbeat, too: the worker that put it is alive.
func heartbeat(e buckets.Entry) (h workerid.Heartbeat) {
	if json.Unmarshal(e.Value, &h) != nil {
		h = workerid.Heartbeat{}
	}
	h.At = e.Created.UnixMilli()
	return h
}

// Leave implements [workerid.Registry].
func (r *Registry) Leave(ctx context.Context, w int) error {
	return r.workers.Purge(ctx, strconv.Itoa(w))
}

// all returns what the entries of a bucket hold, by worker number; it omits keys that are no worker number.
func all[T any](ctx context.Context, b *buckets.Bucket, read func(buckets.Entry) T) (map[int]T, error) {
	entries, err := b.All(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[int]T, len(entries))
	for key, kve := range entries {
		if w, ok := number(key); ok && !kve.Removed {
			out[w] = read(kve)
		}
	}
	return out, nil
}

// number returns the worker number of a key, if it is one. Each number has one key: an entry 07 that someone put must
// not hide the entry of number 7.
func number(key string) (w int, ok bool) {
	w, err := strconv.Atoi(key)
	return w, err == nil && w >= 0 && strconv.Itoa(w) == key
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: strings and integers
	}
	return b
}

// Unused reports whether the registry has no records: then no worker ever had a number in it.
func (r *Registry) Unused(ctx context.Context) (bool, error) {
	records, err := r.Records(ctx)
	return err == nil && len(records) == 0, err
}
