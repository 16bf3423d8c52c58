package loaders

import (
	"context"
	"time"
)

const (
	// patience is the shortest time that a worker waits for a loader's answer.
	patience = 200 * time.Millisecond
	// loads is how many load times a loader may take to answer.
	loads = 3
)

// patience returns how long to wait for a loader's answer within ctx: at most half of the time, so that the other half
// remains for a load of the worker's own. Before the first estimate it is that half.
//
// A message waits for the load that is under way, and then for its own load. A worker that gave up sooner would load at
// the same time as the loader. If JetStream is slow, all workers would do so, and their compare-and-sets would race for
// one mark: some workers would win none before their requests expire.
func (r *Ring) patience(ctx context.Context) time.Duration {
	slowest := r.slowest.Get()
	d, half := max(patience, loads*slowest), time.Duration(0)
	if end, ok := ctx.Deadline(); ok {
		half = max(patience, time.Until(end)/2)
	}
	if half > 0 && (slowest == 0 || d > half) {
		return half
	}
	return d
}
