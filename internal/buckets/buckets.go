// Package buckets opens the JetStream KV buckets that natsid keeps its
// promises in, and makes those that are missing.
package buckets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Config describes a bucket.
type Config struct {
	Name        string
	Description string
	TTL         time.Duration // of each value since it was put; 0: kept for ever
	Replicas    int           // 1 if 0
}

// ErrForgets is returned for a bucket that must keep its values for ever and
// does not.
var ErrForgets = errors.New("the bucket forgets what it must keep")

// Open binds a bucket, making it first if there is none. One that exists is
// used as it is; mismatch, if not empty, says how it differs from cfg. Only
// one that forgets what cfg says must be kept is refused, with [ErrForgets].
//
// What it makes differs from an ordinary bucket in two ways that the laws of
// uniqueness rest on. Its revisions begin at the present Unix time in
// microseconds, so that those of a bucket deleted and made again never
// repeat: a compare-and-set with an old revision would otherwise succeed. And
// all reads are answered by the stream's leader: replicas lag, and a stale
// read would be taken for a foreign write.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config) (kv jetstream.KeyValue, mismatch string, err error) {
	kv, err = js.KeyValue(ctx, cfg.Name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		_, err = js.CreateStream(ctx, streamConfig(cfg))
		if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			kv, err = js.KeyValue(ctx, cfg.Name)
		}
	}
	if err != nil {
		return nil, "", fmt.Errorf("bucket %s: %w", cfg.Name, err)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("bucket %s: %w", cfg.Name, err)
	}
	have := status.Config()
	if cfg.TTL == 0 && have.TTL != 0 {
		return nil, "", fmt.Errorf("bucket %s: %w: it has a TTL of %v; take that off", cfg.Name, ErrForgets, have.TTL)
	}
	if have.Replicas != max(1, cfg.Replicas) || have.TTL != cfg.TTL {
		mismatch = fmt.Sprintf("bucket %s has %d replicas and a TTL of %v, wanted %d and %v", cfg.Name, have.Replicas, have.TTL, max(1, cfg.Replicas), cfg.TTL)
	}
	return kv, mismatch, nil
}

// streamConfig is what [jetstream.KeyValueConfig] stands for (ADR-8), with
// FirstSeq and without AllowDirect.
func streamConfig(cfg Config) jetstream.StreamConfig {
	duplicates := 2 * time.Minute
	if cfg.TTL > 0 {
		duplicates = min(duplicates, cfg.TTL)
	}
	return jetstream.StreamConfig{
		Name:              "KV_" + cfg.Name,
		Description:       cfg.Description,
		Subjects:          []string{"$KV." + cfg.Name + ".>"},
		FirstSeq:          uint64(time.Now().UnixMicro()),
		MaxMsgsPerSubject: 1,
		MaxAge:            cfg.TTL,
		MaxBytes:          -1,
		MaxMsgSize:        -1,
		MaxMsgs:           -1,
		MaxConsumers:      -1,
		Replicas:          max(1, cfg.Replicas),
		Discard:           jetstream.DiscardNew,
		Duplicates:        duplicates,
		AllowRollup:       true,
		DenyDelete:        true,
	}
}

// All returns the present entries of a bucket by key, deleted keys left out.
// The snapshot may be a little old: nothing may rest on it that a
// compare-and-set does not confirm.
func All(ctx context.Context, kv jetstream.KeyValue) (map[string]jetstream.KeyValueEntry, error) {
	watcher, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, err
	}
	defer watcher.Stop()
	all := make(map[string]jetstream.KeyValueEntry)
	for {
		select {
		case entry, ok := <-watcher.Updates():
			if !ok {
				return nil, errors.New("the listing was cut off")
			}
			if entry == nil {
				return all, nil
			}
			all[entry.Key()] = entry
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
