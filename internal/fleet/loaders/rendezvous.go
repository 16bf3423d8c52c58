package loaders

import (
	"context"
	"sync"
	"time"
)

// A rendezvous makes a load of a tag wait for the messages of workers that pass their loads on to this one. It is safe
// for concurrent use.
//
// A worker sends its next message once the last is answered, for all requests that arrived in between. So messages
// arrive just after a load has ended, when the next load would already have read the mark: without the wait a message
// would take two loads.
type rendezvous struct {
	last   time.Time     // when the last message came; [Ring.mu] guards it
	parked int           // messages that wait for their answers; [Ring.mu] guards it
	all    chan struct{} // gets a value once no worker is awaited

	mu      sync.Mutex
	awaited int           // workers that were served and have not sent their next message
	took    time.Duration // duration of the last load
}

// mostWait bounds the wait of a load, which is a quarter of the duration of the last load.
const mostWait = 2 * time.Millisecond

// await records that a worker was served, so that the next load awaits its message.
func (v *rendezvous) await() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.awaited++
}

// came records that a message came, and reports whether it was the last awaited one: then the caller must call goOn.
func (v *rendezvous) came() (last bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.awaited == 0 {
		return false
	}
	v.awaited--
	return v.awaited == 0
}

// goOn ends the wait of the load that calls wait.
func (v *rendezvous) goOn() {
	select {
	case v.all <- struct{}{}:
	default:
	}
}

// loaded records the duration of a load.
func (v *rendezvous) loaded(took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.took = took
}

// wait waits until the workers that the last load served have sent their next messages, for mostWait at most, and
// returns how long it waited. A worker that is late is not awaited again until it is served again.
//
// Law: a load calls it before it joins requests, and so before it sends its compare-and-set.
func (v *rendezvous) wait(ctx context.Context) time.Duration {
	v.mu.Lock()
	select {
	case <-v.all: // from an earlier load
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
