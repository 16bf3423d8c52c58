//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/testkit/overload"
)

// overloadFaults offer workers more than they can answer. They have so little CPU time
// that callers and servers are not what is overloaded.
func overloadFaults() (faults []fault) {
	for _, of := range []struct {
		name             string
		what             kind
		servers, workers int
	}{
		{"overload-segment", long, 1, 1},
		{"overload-snowflake", snowflake, 1, 2},
		{"overload-cluster", long, 3, 3},
	} {
		faults = append(faults, fault{
			name: of.name,
			summary: fmt.Sprintf("%v times what the workers, %d, can answer is asked of them for %v, then %v times",
				overload.Factor, of.workers, overloadFor, overload.Rest),
			fleet:  fleet{servers: of.servers, workers: of.workers, quota: time.Millisecond},
			inject: overloadWorkers(of.what),
			losses: []loss{{kinds: all, outcomes: []string{noResponders}}}, alone: true,
		})
	}
	return faults
}

const overloadFor = 20 * time.Second

// overloadWorkers requests IDs of a kind, beside the load of all trials.
func overloadWorkers(what kind) func(*trial) func() {
	return func(t *trial) func() {
		offer := overload.Trial{
			URLs: t.urls(), Subject: what.subject(), Outstanding: 512, Length: overloadFor, After: overloadFor / 4,
			Ledger: t.load.ledgers[what],
		}
		for _, v := range t.servers {
			offer.Servers, offer.Monitors = append(offer.Servers, v.cmd.Process.Pid), append(offer.Monitors, v.monitor)
		}
		for _, w := range t.workers {
			offer.Workers = append(offer.Workers, w.cmd.Process.Pid)
		}
		f, err := offer.Run(t.ctx)
		t.must(err)
		t.overload = &f
		t.load.stoodStill(f.Lag)
		if n := f.Late + f.Never + f.Loose; n > 0 {
			t.violation("of %d requests %d were answered after more than %v and %d never; later, below the capacity, "+
				"%d more", f.Asked, f.Late, overload.Patience, f.Never, f.Loose)
		}
		if f.SlowConsumers > 0 {
			t.violation("nats-servers cut off %d connections that read too slowly", f.SlowConsumers)
		}
		return nil
	}
}

// limitWorkers gives the workers the CPU time of the fleet, if that is limited.
func (c *cluster) limitWorkers() {
	for _, w := range c.workers {
		if c.fleet.quota == 0 {
			return
		}
		release, err := overload.Limit(w.cmd.Process.Pid, c.fleet.quota)
		if err != nil {
			c.Skipf("%v", err)
		}
		c.Cleanup(release)
	}
}

// monitoring returns what a server's configuration has for its monitoring, if a trial
// needs that.
func (c *cluster) monitoring(v *server) string {
	if c.fleet.quota == 0 {
		return ""
	}
	addr := c.port()
	v.monitor = "http://" + addr
	return fmt.Sprintf("\nhttp: %q", addr)
}
