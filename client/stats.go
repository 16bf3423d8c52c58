package client

import (
	"context"
	"sync/atomic"
	"time"
)

// A Call describes to an observer a call that begins; see [ObserveCalls].
type Call struct {
	Subject string
	IDs     int // IDs wanted; 0 if the call is about tags
}

// begin calls the observer of calls, and returns the function that ends the call.
func (c *Client) begin(ctx context.Context, call Call) (end func(error)) {
	if c.observeCall != nil {
		end = c.observeCall(ctx, call)
	}
	if end == nil {
		return func(error) {}
	}
	return end
}

// Stats counts the work of a handle since it was made.
type Stats struct {
	IDs      int64         // IDs received, including those of a prefetched range
	Requests int64         // requests sent, without copies
	Hedges   int64         // copies sent since no answer came
	Retries  int64         // copies sent after a refusal
	Failures int64         // requests that ended without IDs
	Held     int64         // prefetched IDs that wait for a call
	Usual    time.Duration // smoothed response time; 0 before the first answer
}

// counts are the counters of [Stats] in a target.
type counts struct {
	ids, requests, hedges, retries, failures atomic.Int64
}

// Stats returns the statistics of the handle. It is safe for concurrent use.
func (h *Handle) Stats() Stats {
	c := &h.target.counts
	s := Stats{
		IDs: c.ids.Load(), Requests: c.requests.Load(), Hedges: c.hedges.Load(), Retries: c.retries.Load(),
		Failures: c.failures.Load(),
	}
	if h.stock != nil {
		s.Held = h.stock.held()
	}
	h.target.mu.Lock()
	defer h.target.mu.Unlock()
	s.Usual = h.target.usual
	return s
}
