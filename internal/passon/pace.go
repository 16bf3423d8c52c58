package passon

import (
	"context"
	"sync"
	"time"
)

// A pace is how long loads of strict tags took lately, whoever made them. The zero value knows of none. It is safe for
// concurrent use.
//
// A message waits for the load that is under way, and for its own. A worker that gave up sooner would load beside the
// loader: where JetStream is slow all would, and their compare-and-sets fight over one mark, of which some win none
// before their requests expire.
type pace struct {
	mu      sync.Mutex
	slowest time.Duration // it fades by a sixteenth with each load
}

const (
	// patience is how long a loader may take to answer at least.
	patience = 200 * time.Millisecond
	// loads is how many times what a load takes it may take.
	loads = 3
)

// note notes how long a load took, one that failed too.
func (p *pace) note(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slowest = max(took, p.slowest-p.slowest/16)
}

// patience returns how long a loader may take to answer within ctx. Half of the time remains for a load of the worker's
// own; the loader gets all of the other half before it is known how long loads take.
func (p *pace) patience(ctx context.Context) time.Duration {
	p.mu.Lock()
	slowest := p.slowest
	p.mu.Unlock()
	d, half := max(patience, loads*slowest), time.Duration(0)
	if end, ok := ctx.Deadline(); ok {
		half = max(patience, time.Until(end)/2)
	}
	if half > 0 && (slowest == 0 || d > half) {
		return half
	}
	return d
}
