package client

import (
	"sync/atomic"
	"time"
)

// Gathered returns how many calls wait for a batch that has not left.
func (h *Handle) Gathered() int64 {
	h.merger.mu.Lock()
	defer h.merger.mu.Unlock()
	return h.merger.gathering.waiting
}

// ParseRuns reads a reply to a request for n IDs.
var ParseRuns = parseRuns

// Suspend has a function returned that makes the wall clock of a client go ahead, and no
// other clock, as when its machine was suspended. It is called before the first handle.
func (c *Client) Suspend() (suspend func(time.Duration)) {
	var ahead atomic.Int64
	c.wall = func() time.Time { return wallClock().Add(time.Duration(ahead.Load())) }
	return func(d time.Duration) {
		ahead.Add(int64(d))
		time.Sleep(wallEvery) // from then on the wall clock is read
	}
}
