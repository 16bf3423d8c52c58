package passon

import (
	"context"
	"time"
)

const (
	// patience is how long a loader may take to answer at least.
	patience = 200 * time.Millisecond
	// loads is how many times what a load takes the loader may take.
	loads = 3
)

// patience returns how long a loader may take to answer within ctx. Half of the time remains for a load of the worker's
// own; the loader gets all of the other half before it is known how long loads take.
//
// A message waits for the load that is under way, and for its own. A worker that gave up sooner would load beside the
// loader: where JetStream is slow all would, and their compare-and-sets fight over one mark, of which some win none
// before their requests expire.
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
