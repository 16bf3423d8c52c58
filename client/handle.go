package client

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/natsid/natsid/subjects"
)

const (
	// DefaultMaxBatch is how many calls share a request at most.
	DefaultMaxBatch = 10_000
	// DefaultMaxAge is how old an ID that is held in advance may be.
	DefaultMaxAge = time.Minute
)

// A SegmentConfig is the settings of a handle of a tag. The zero value means the defaults.
type SegmentConfig struct {
	// Prefetch is how many IDs are held in advance, up to the workers' limit of a request: see [Handle]. 0 means none.
	// For a strict tag Next fails with [ErrBadRequest], since other callers could get higher IDs sooner.
	Prefetch int
	// MaxAge is how old an ID that is held may be, up to [subjects.MaxPrefetchAge]; 0 means [DefaultMaxAge].
	MaxAge time.Duration
	// MaxBatch is how many calls share a request at most; 0 means [DefaultMaxBatch]. A lower limit of a worker is
	// obeyed. Up to five times as many calls may wait; further calls fail with [ErrBusy].
	MaxBatch int
}

// A SnowflakeConfig is the settings of a handle of snowflakes. The zero value means the defaults.
type SnowflakeConfig struct {
	// Business is the value of the business field of the snowflakes; 0 if the layout has no such field.
	Business int64
	// Prefetch and MaxAge are as in [SegmentConfig].
	Prefetch int
	MaxAge   time.Duration
}

// A Handle draws the IDs of one tag, or snowflakes. It is safe for concurrent use.
//
// With Prefetch, a handle holds a range of IDs. A call that leaves half of the range or less, or finds less than a
// quarter of MaxAge left, requests the next range in the background. The age of an ID counts from before its request.
// IDs older than MaxAge are discarded, and no call gets them. So the time in a snowflake is at most MaxAge old, and
// when an operator raises a tag, that takes effect within MaxAge. While natsid is out of reach, calls get held IDs.
type Handle struct {
	target *target
	merger *merger
	stock  *stock // nil without Prefetch
}

// settings identify a handle: calls with equal settings share one.
type settings struct {
	subject  string
	prefetch int
	maxAge   time.Duration
	maxBatch int
}

// handlesMost is how many handles a client remembers, about 1 KB each. To keep memory bounded, the client forgets all
// handles at that number; new handles then share no requests with forgotten ones.
const handlesMost = 10_000

// Segment returns the handle of a tag. Calls with equal arguments return the same handle, whose callers share requests.
// The error is an [ErrBadRequest] that names the argument that is wrong.
func (c *Client) Segment(tag string, cfg SegmentConfig) (*Handle, error) {
	if err := subjects.CheckTag(tag); err != nil {
		return nil, refusal(err)
	}
	return c.handle(settings{c.cfg.Namespace.Segment(tag), cfg.Prefetch, cfg.MaxAge, cfg.MaxBatch})
}

// Snowflake returns the handle of the snowflakes of a business. Calls with equal arguments return the same handle,
// whose callers share requests. The error is an [ErrBadRequest] that names the argument that is wrong.
func (c *Client) Snowflake(cfg SnowflakeConfig) (*Handle, error) {
	subject := c.cfg.Namespace.Snowflake()
	switch {
	case cfg.Business < 0:
		return nil, badRequest("Business is %d, want at least 0", cfg.Business)
	case cfg.Business > 0:
		subject = c.cfg.Namespace.SnowflakeOf(cfg.Business)
	}
	return c.handle(settings{subject, cfg.Prefetch, cfg.MaxAge, 0})
}

func (c *Client) handle(s settings) (*Handle, error) {
	switch {
	case s.prefetch < 0 || s.maxAge < 0 || s.maxAge > subjects.MaxPrefetchAge:
		return nil, badRequest("prefetch %d, %v: want at least 1, and an age up to %v",
			s.prefetch, s.maxAge, subjects.MaxPrefetchAge)
	case s.maxAge > 0 && s.prefetch == 0:
		return nil, badRequest("MaxAge without Prefetch: no IDs are held")
	case s.maxBatch < 0 || s.maxBatch > MaxIDs:
		return nil, badRequest("MaxBatch is %d, want 0 to %d", s.maxBatch, MaxIDs)
	}
	s.maxAge, s.maxBatch = cmp.Or(s.maxAge, DefaultMaxAge), cmp.Or(s.maxBatch, DefaultMaxBatch)
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.handles[s]
	if h == nil {
		if len(c.handles) == handlesMost {
			clear(c.handles) // callers keep the handles that they hold
		}
		t := newTarget(c, s.subject, int64(s.maxBatch))
		h = &Handle{target: t, merger: newMerger(t)}
		if s.prefetch > 0 {
			h.stock = newStock(t, s.prefetch, s.maxAge)
		}
		c.handles[s] = h
	}
	return h, nil
}

// Next returns one ID. Concurrent calls share requests. Unless the handle has Prefetch, the ID is from a request that
// was sent after the call began.
//
// Until ctx ends, Next repeats the request after silence, after a lost connection, and after a refusal that another
// worker may not give. A ctx without a deadline ends after the client's Timeout. Next may return up to 20 ms after ctx
// has ended, or 100 ms where answers take long. IDs for which no call waits any longer are holes.
//
// The error is [ErrBadRequest], [ErrUnknownTag], [ErrUsedUp], [ErrNotNatsid], [ErrBusy], [ErrClosed], or
// [ErrUnavailable] while workers wait for an operator. Otherwise it is that of ctx, and wraps the reason why there was
// no ID, such as [ErrNotServed], [ErrUnavailable] or [ErrThrottled].
func (h *Handle) Next(ctx context.Context) (id subjects.ID, err error) {
	if err := ctx.Err(); err != nil {
		return 0, ended(h.target.subject, err)
	}
	var asking chan struct{}
	if h.stock != nil {
		if id, asking = h.stock.next(); id > 0 {
			return id, nil
		}
	}
	began := time.Now()
	if h.stock != nil {
		id, err = h.stock.wait(ctx, asking)
	} else {
		id, err = h.merger.next(ctx)
	}
	h.target.observe(ctx, began, 1, err)
	return id, err
}

// NextN returns n IDs, 1 to [MaxIDs]: held ones if n are held, else IDs that are requested for this call alone. If n
// is above the limit of a request, 100,000 by default, NextN sends several requests in turn; if one fails, no call
// gets the IDs of the requests before. Errors are those of [Handle.Next].
func (h *Handle) NextN(ctx context.Context, n int) (runs subjects.Runs, err error) {
	if err := ctx.Err(); err != nil {
		return nil, ended(h.target.subject, err)
	}
	if h.stock != nil {
		if runs = h.stock.nextN(n); runs != nil {
			return runs, nil
		}
	}
	began := time.Now()
	defer func() { h.target.observe(ctx, began, n, err) }()
	if n < 1 || n > MaxIDs {
		return nil, badRequest("%d IDs: want 1 to %d", n, MaxIDs)
	}
	bounded, cancel := h.target.client.bounded(ctx)
	defer cancel()
	for left := n; left > 0; {
		part := int(min(int64(left), h.target.limit.Load()))
		a := h.target.request(bounded, part)
		switch {
		case 0 < a.most && a.most < part && errors.Is(a.err, ErrBadRequest):
			h.target.limit.Store(int64(a.most))
		case a.err != nil:
			return nil, a.err
		default:
			runs, left = append(runs, a.runs...), left-part
		}
	}
	return runs, nil
}

func (t *target) request(ctx context.Context, n int) answer {
	done := make(chan answer, 1)
	f := &flight{
		target: t, n: n,
		wanted: func() bool { return ctx.Err() == nil }, done: func(a answer) { done <- a },
	}
	f.launch()
	select {
	case a := <-done:
		if !errors.Is(a.err, errUnwanted) { // else ctx has ended, and the flight noticed it first
			return a
		}
	case <-ctx.Done():
	}
	return answer{err: t.gaveUp(ctx.Err())}
}

// A Source gives IDs, as a [Handle] or a Holder of package number does. Programs that take a Source are tested with
// the one of package clienttest, which gives IDs from memory.
type Source interface {
	Next(ctx context.Context) (subjects.ID, error)
	NextN(ctx context.Context, n int) (subjects.Runs, error)
}

var _ Source = (*Handle)(nil)
