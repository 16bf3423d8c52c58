package passon

import (
	"context"
	"sync"
	"time"
)

// A rendezvous is where the loads of a tag meet the messages of those who pass on to this worker. It is safe for
// concurrent use.
//
// A worker sends its next message when the last is answered, so all that came to it meanwhile is in it. Messages arrive
// a moment after a load has ended, and the next load has read the mark by then. One that misses the load waits for two.
type rendezvous struct {
	last   time.Time     // when a message came; [Ring.mu] guards it
	parked int           // messages that wait for their answers; [Ring.mu] guards it
	all    chan struct{} // has a token once nobody is awaited any more

	mu      sync.Mutex
	awaited int           // workers that were served and have not sent the next message
	took    time.Duration // by the last load
}

// A load waits for a quarter of what the last one took, and mostWait at most.
const mostWait = 2 * time.Millisecond

// await notes that a worker was served.
func (v *rendezvous) await() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.awaited++
}

// came notes that a message came, and reports whether it was the last that was awaited: then goOn must follow.
func (v *rendezvous) came() (last bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.awaited == 0 {
		return false
	}
	v.awaited--
	return v.awaited == 0
}

// goOn ends the wait of a load.
func (v *rendezvous) goOn() {
	select {
	case v.all <- struct{}{}:
	default:
	}
}

// loaded notes how long a load took.
func (v *rendezvous) loaded(took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.took = took
}

// wait waits until the workers that the last load served have sent their next messages, but not for long, and returns
// for how long. Whoever is late is not waited for again before it was served again.
//
// Law: a load calls it before it joins requests, and so before it sends its compare-and-set.
func (v *rendezvous) wait(ctx context.Context) time.Duration {
	v.mu.Lock()
	select {
	case <-v.all: // of a load before
	default:
	}
	awaited, most := v.awaited, min(v.took/4, mostWait)
	v.mu.Unlock()
	if awaited == 0 || most == 0 {
		return 0
	}
	began := time.Now()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-v.all:
	case <-timer.C:
	case <-ctx.Done():
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.awaited = 0
	return time.Since(began)
}
