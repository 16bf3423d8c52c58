package policy

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/internal/gather"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

const (
	countEvery = 10 * time.Second // how often workers are counted while a rate is in use
	countFor   = time.Second      // bounds the wait for answers
	lookEvery  = time.Second
)

// Share asks all workers how many of them serve tags, while a rate is in use, until ctx ends. conn must not be the
// connection on which requests arrive.
func (l *Limits) Share(ctx context.Context, conn *nats.Conn, ns subjects.Namespace) {
	var c count
	var asked time.Time
	for jitter.Sleep(ctx, jitter.Around(lookEvery)) == nil {
		if time.Since(asked) < countEvery || !l.isUsed.Swap(false) {
			continue
		}
		asked = time.Now()
		if n := serving(ctx, conn, ns); n > 0 {
			l.workers.Store(c.of(n))
		}
	}
}

// A count is the number of workers that share a rate. It rises at once, but falls only after two lower counts in a row:
// an answer may come late.
type count struct{ last int64 }

func (c *count) of(n int64) int64 {
	counted := max(n, c.last)
	c.last = n
	return counted
}

// serving returns how many of the workers that answer serve tags.
func serving(ctx context.Context, conn *nats.Conn, ns subjects.Namespace) (n int64) {
	ctx, cancel := context.WithTimeout(ctx, countFor)
	defer cancel()
	// Without a connection nobody answers: then the count does not change.
	_ = gather.All(ctx, conn, wire.ServicePing(ns), nil, func(m *nats.Msg) (enough bool) {
		var ping micro.Ping
		if json.Unmarshal(m.Data, &ping) == nil && ping.Metadata[wire.SegmentEndpoint] == wire.Ready {
			n++
		}
		return false
	})
	return n
}
