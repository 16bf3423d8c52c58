package mysqlstore

import (
	"errors"
	"sync"
	"time"

	"github.com/natsid/natsid/segment"
)

// probeEvery is the interval of the writes that test whether a read-only server takes writes again.
const probeEvery = 100 * time.Millisecond

// A gate limits writes to one per probeEvery while the server takes no writes. The driver drops the connection of each
// refused write, since the address may lead to another server by now. The zero value lets all writes through.
type gate struct {
	mu      sync.Mutex
	refused error     // error of the last write; nil while the server takes writes
	next    time.Time // when the next write may be sent
}

// enter returns why a write may not be sent now, or nil.
func (g *gate) enter(now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refused == nil {
		return nil
	}
	if now.Before(g.next) {
		return g.refused
	}
	g.next = now.Add(probeEvery)
	return nil
}

// leave records the outcome of a write.
func (g *gate) leave(now time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refused = nil; errors.Is(err, segment.ErrNoWrites) {
		g.refused, g.next = err, now.Add(probeEvery)
	}
}
