// Package overload offers workers more requests than they can answer, and counts what becomes of each.
package overload

import (
	"context"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/testkit/ledger"
)

// A Trial has three phases: it measures how many IDs per second the workers can issue, offers them Factor times as many
// requests, and then Rest times as many. Its callers never back off: they send each request when it is due, whatever
// became of earlier ones.
type Trial struct {
	URLs     []string // of the nats-servers, for the callers
	Monitors []string // URLs of their monitoring, without a path
	Subject  string   // of the requests, each for one ID
	Servers  []int    // process IDs of the nats-servers
	Workers  []int    // process IDs

	Outstanding int           // requests under way at any time while the capacity is measured
	Length      time.Duration // of the overload
	After       time.Duration // how long the load is below the capacity then

	// Ledger gets every ID. It stays open: its owner judges it.
	Ledger *ledger.Ledger
}

const (
	// The overload is Factor times the capacity, and the load after it Rest times the capacity.
	Factor = 3.0
	Rest   = 0.9
	// Patience is how long a caller waits for an answer. An ID that comes later counts as late.
	Patience = 2 * time.Second

	warmUp    = time.Second     // before the capacity is measured
	measuring = 3 * time.Second // the capacity

	// Requests count as unanswered once no answer to any request has come for this long.
	silence = 5 * time.Second
)

// Run runs the trial.
func (t Trial) Run(ctx context.Context) (f Figures, err error) {
	c, err := connect(t)
	if err != nil {
		return f, err
	}
	defer c.close()
	if f.Capacity, err = c.capacity(ctx, t.Outstanding, warmUp, measuring); err != nil {
		return f, err
	}
	if f.Capacity == 0 {
		return f, fmt.Errorf("no IDs on %s in %v", t.Subject, measuring)
	}
	before, err := slowConsumers(t.Monitors)
	if err != nil {
		return f, err
	}
	memory := watchMemory(t.Servers, t.Workers)
	c.watchLag(ctx)
	from := time.Since(c.began)
	c.offer(ctx, Factor*f.Capacity, t.Length)
	till := time.Since(c.began)
	c.offer(ctx, Rest*f.Capacity, t.After)
	end := time.Since(c.began)
	c.wait(ctx)
	f.ServerMemory, f.WorkerMemory = memory()
	after, err := slowConsumers(t.Monitors)
	if err != nil {
		return f, err
	}
	f.SlowConsumers = after - before
	c.count(&f, from, till, end)
	if err := ctx.Err(); err != nil {
		return f, err
	}
	return f, c.failed()
}
