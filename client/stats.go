package client

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A Call describes to [Config.ObserveCall] a call that has ended.
type Call struct {
	Subject string
	IDs     int // IDs wanted; 0 if the call is about tags
	Began   time.Time
	Took    time.Duration
	Outcome string // "ok", or the reason, such as "not_served": one of a fixed set, as labels of metrics need
	Err     error  // what the call returns; nil if the Outcome is "ok"
}

var outcomes = []struct {
	err  error
	name string
}{
	{ErrNotServed, "not_served"}, {ErrUnavailable, "unavailable"}, {ErrThrottled, "throttled"},
	{ErrBadRequest, "bad_request"}, {ErrUnknownTag, "unknown_tag"}, {ErrUsedUp, "used_up"},
	{ErrTagExists, "tag_exists"}, {ErrNotNatsid, "not_natsid"}, {ErrBusy, "busy"}, {ErrClosed, "closed"},
	{context.DeadlineExceeded, "timeout"}, {context.Canceled, "canceled"},
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.name
		}
	}
	return "failed"
}

func (c *Client) observe(ctx context.Context, subject string, began time.Time, ids int, err error) {
	if f := c.cfg.ObserveCall; f != nil {
		f(ctx, Call{subject, ids, began, time.Since(began), outcome(err), err})
	}
}

func (t *target) observe(ctx context.Context, began time.Time, ids int, err error) {
	t.client.observe(ctx, t.subject, began, ids, err)
}

// Stats counts the work of a handle since it was made.
type Stats struct {
	IDs      int64         // IDs received, including those of a prefetched range
	Requests int64         // requests sent, without copies
	Hedges   int64         // copies sent because no answer came
	Retries  int64         // copies sent after a refusal
	Failures int64         // requests that ended without IDs
	Held     int64         // prefetched IDs that wait for a call
	Usual    time.Duration // smoothed response time; 0 before the first answer
}

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
		h.stock.mu.Lock()
		held, _ := h.stock.fresh()
		h.stock.mu.Unlock()
		s.Held = int64(held)
	}
	h.target.mu.Lock()
	defer h.target.mu.Unlock()
	s.Usual = h.target.usual
	return s
}
