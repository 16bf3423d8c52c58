//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/testkit/overload"
	"github.com/natsid/natsid/internal/wire"
)

// overloadFaults offer workers more requests than they can answer. Workers have so little CPU time that callers and
// servers are not overloaded.
func overloadFaults() (faults []fault) {
	refused := loss{kinds: all, outcomes: []string{noResponders}}
	// Messages between servers when the last worker leaves are lost.
	betweenServers := loss{kinds: all, outcomes: []string{timeout}, most: 150}
	for _, of := range []struct {
		name             string
		what             kind
		servers, workers int
		losses           []loss
		never            float64 // share of the requests that may get no answer
	}{
		{"overload-segment", long, 1, 1, []loss{refused}, 0},
		{"overload-snowflake", snowflake, 1, 2, []loss{refused}, 0},
		{"overload-cluster", long, 3, 3, []loss{refused, betweenServers}, 0.01},
	} {
		faults = append(faults, fault{
			name: of.name,
			summary: fmt.Sprintf("%v times what the workers, %d, can answer is asked of them for %v, then %v times",
				overload.Factor, of.workers, overloadFor, overload.Rest),
			fleet:  fleet{servers: of.servers, workers: of.workers, quota: time.Millisecond},
			inject: overloadWorkers(of.what, of.never),
			losses: of.losses, alarms: alarms{wire.AlarmOverload: {1, 2 * of.workers}}, alone: true,
		})
	}
	return faults
}

const overloadFor = 20 * time.Second

// overloadWorkers requests IDs of a kind, beside the load of all trials. The share never of the requests may get no
// answer.
func overloadWorkers(what kind, never float64) func(*trial) func() {
	return func(t *trial) func() {
		offer := overload.Trial{
			URLs: t.urls(), Subject: what.subject(), Outstanding: 512, Length: overloadFor, After: overloadFor / 4,
			Ledger: t.load.ledgers[what],
		}
		for _, v := range t.servers {
			offer.Servers, offer.Monitors = append(offer.Servers, v.Cmd.Process.Pid), append(offer.Monitors, v.monitor)
		}
		for _, w := range t.workers {
			offer.Workers = append(offer.Workers, w.Cmd.Process.Pid)
		}
		f, err := offer.Run(t.ctx)
		t.must(err)
		t.overload = &f
		t.load.stoodStill(f.Lag)
		if f.Late > 0 || f.Loose > 0 || float64(f.Never) > never*float64(f.Asked) {
			t.violation("of %d requests %d were answered after more than %v and %d never; then, below the capacity, "+
				"%d late or never", f.Asked, f.Late, overload.Patience, f.Never, f.Loose)
		}
		if f.SlowConsumers > 0 {
			t.violation("nats-servers cut off %d connections that read too slowly", f.SlowConsumers)
		}
		return nil
	}
}

// limitWorkers limits the workers to the CPU time of the fleet, if that is set.
func (c *cluster) limitWorkers() {
	for _, w := range c.workers {
		if c.fleet.quota == 0 {
			return
		}
		release, err := overload.Limit(w.Cmd.Process.Pid, c.fleet.quota)
		if err != nil {
			c.Skipf("%v", err)
		}
		c.Cleanup(release)
	}
}

// monitoring returns the part for its monitoring in a server's configuration, if a trial needs that.
func (c *cluster) monitoring(v *server) string {
	if c.fleet.quota == 0 {
		return ""
	}
	addr := c.port()
	v.monitor = "http://" + addr
	return fmt.Sprintf("\nhttp: %q", addr)
}
