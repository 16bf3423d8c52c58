package client

import (
	"sync/atomic"
	"time"
)

// A Request tells an observer of a request that has ended; see [Observe].
type Request struct {
	Subject string
	IDs     int           // that were asked for: calls that share a request ask for one each
	Copies  int           // that were sent: 1 unless it was hedged or retried
	Took    time.Duration // from the first copy to the answer
	Err     error         // as calls return it; nil if they got IDs
}

// Stats counts what a handle has done since it was made.
type Stats struct {
	IDs      int64         // that were received; those of a prefetched range, too
	Requests int64         // that were sent, without copies
	Hedges   int64         // copies sent since no answer came
	Retries  int64         // copies sent after a refusal
	Failures int64         // requests that ended without IDs
	Held     int64         // prefetched IDs that wait for a call
	Usual    time.Duration // the smoothed time of an answer; 0 before the first
}

// counts is what a source counts of [Stats].
type counts struct {
	ids, requests, hedges, retries, failures atomic.Int64
}

// ended counts a flight, and tells the observer.
func (s *source) ended(f *flight, took time.Duration, err error) {
	if err == nil {
		s.counts.ids.Add(int64(f.n))
	} else {
		s.counts.failures.Add(1)
	}
	s.client.observe(Request{Subject: s.subject, IDs: f.n, Copies: f.copies, Took: took, Err: err})
}

// Stats returns what the handle has done. It is safe for concurrent use.
func (h *Handle) Stats() Stats {
	c := &h.src.counts
	s := Stats{
		IDs: c.ids.Load(), Requests: c.requests.Load(), Hedges: c.hedges.Load(), Retries: c.retries.Load(),
		Failures: c.failures.Load(),
	}
	if h.stock != nil {
		s.Held = h.stock.held()
	}
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	s.Usual = h.src.usual
	return s
}
