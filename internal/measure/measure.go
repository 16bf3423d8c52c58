// Package measure makes calls from many goroutines for a time, and reports how many succeeded, how long they took,
// and which errors the others returned.
package measure

import (
	"cmp"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A Load describes how calls are made.
type Load struct {
	// Callers is how many goroutines call. Each waits for the end of its call before it makes another.
	Callers int
	// Limit is the most calls of a Run; 0 means any number.
	Limit int64
	// Name returns the name under which an error is counted.
	Name func(error) string
}

// afterError is how long a caller waits after a failed call: refusals are fast, and are not the subject of the
// measurement.
const afterError = 10 * time.Millisecond

// Run makes calls for length, until the limit is reached, or until ctx ends, and waits for calls under way. Each caller
// makes a call, however short the run is. A call that fails after ctx has ended is not counted as failed.
func (l *Load) Run(ctx context.Context, length time.Duration, call func(context.Context) error) *Figures {
	turn, end := context.WithTimeout(ctx, length)
	defer end()
	r := &run{Load: l, turn: turn, call: call, limit: cmp.Or(l.Limit, math.MaxInt64)}
	began := time.Now()
	var callers sync.WaitGroup
	for range l.Callers {
		callers.Go(func() { r.loop(ctx) })
	}
	callers.Wait()
	r.Made, r.Took = min(r.taken.Load(), r.limit), time.Since(began)
	return &r.Figures
}

// A run is one Run.
type run struct {
	*Load
	turn  context.Context
	call  func(context.Context) error
	limit int64
	taken atomic.Int64 // calls of the limit

	mu sync.Mutex
	Figures
}

// loop is one caller.
func (r *run) loop(ctx context.Context) {
	for r.taken.Add(1) <= r.limit {
		from := time.Now()
		err := r.call(ctx)
		if err != nil && ctx.Err() != nil {
			return
		}
		r.note(time.Since(from), err)
		if err != nil {
			select {
			case <-time.After(afterError):
			case <-r.turn.Done():
			}
		}
		if r.turn.Err() != nil {
			return
		}
	}
}

// note counts a call that has ended.
func (r *run) note(took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.addErrors(map[string]*Failure{r.Name(err): {1, err}})
		return
	}
	r.Calls++
	r.latency.note(took)
}
