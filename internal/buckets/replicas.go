package buckets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// chosen is how many replicas a bucket gets where nobody has chosen.
const chosen = 3

// forming is how long a cluster that has too few servers is given to show the others.
const forming = 30 * time.Second

// makeWith makes the bucket, and chooses its replicas unless the settings say how many: see [Bucket].
func (b *Bucket) makeWith(ctx context.Context, s Settings) error {
	if s.Replicas > 0 {
		s.Async = b.cfg.Fleeting && b.cfg.Alone && s.Replicas == 1
		return b.streams.Make(ctx, b.cfg.Name, s)
	}
	s.Replicas = chosen
	err := b.streams.Make(ctx, b.cfg.Name, s)
	switch {
	case errors.Is(err, ErrFewServers):
		if err := b.await(err); err != nil {
			return err
		}
		b.cfg.Log.Warn("a bucket is made with 1 replica, since JetStream has fewer than 3 servers: while the server "+
			"that keeps it is away nothing is loaded; with 3 servers, `nats stream edit` gives it 3",
			"bucket", b.cfg.Name, "error", err)
	case errors.Is(err, ErrOneServer):
		b.cfg.Log.Info("a bucket is made with 1 replica, since JetStream is a single server", "bucket", b.cfg.Name)
		s.Async = b.cfg.Fleeting // in a cluster nobody could give it replicas later
	default:
		return err
	}
	s.Replicas = 1
	return b.streams.Make(ctx, b.cfg.Name, s)
}

// await returns nil once a cluster had time to form. The server's own text says whether it knows of servers that are
// away.
func (b *Bucket) await(few error) error {
	if strings.Contains(few.Error(), "offline") {
		return fmt.Errorf("a server is away; start it, or choose --replicas: %w", few)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.few.IsZero() {
		b.few = time.Now()
	}
	left := forming - time.Since(b.few)
	if left <= 0 {
		return nil
	}
	return fmt.Errorf("a cluster may be forming: with fewer than %d servers it gets 1 replica in %v; "+
		"--replicas chooses now: %w", chosen, left.Round(time.Second), few)
}
