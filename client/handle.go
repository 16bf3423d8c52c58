package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/natsid/natsid/subjects"
)

// DefaultMaxBatch is how many calls share a request at most, unless the handle has the option [MaxBatch]. Of each
// handle five times as many calls may wait; more fail with [ErrBusy].
const DefaultMaxBatch = 10_000

// A Handle draws the IDs of one tag, or snowflakes. It is safe for concurrent use.
type Handle struct {
	target *target
	fault  error // of the arguments that created the handle
	merger *merger
	stock  *stock // nil without Prefetch
}

// A HandleOption changes a [Handle].
type HandleOption func(*Handle)

// MaxBatch replaces [DefaultMaxBatch] as the number of calls that share a request at most. Values below 1 change
// nothing. A lower limit of a worker is obeyed.
func MaxBatch(n int) HandleOption {
	return func(h *Handle) {
		if n >= 1 {
			h.target.most = int64(n)
		}
	}
}

// Business is the business of snowflakes, for a layout that has a field for it. A
// handle of a tag has none.
func Business(b int64) HandleOption {
	return func(h *Handle) {
		c := h.target.client
		if h.target.subject != c.ns.Snowflake() {
			h.fault = subjects.Errorf(subjects.BadRequest, "business %d: only snowflakes have one", b)
			return
		}
		h.target.subject = c.ns.SnowflakeOf(strconv.FormatInt(b, 10))
	}
}

// Prefetch holds a range of n IDs, and requests the next range in the background before the first is used up. IDs
// older than maxAge, counted from before they were requested, are discarded: so the time in a snowflake is no older
// than that, and a raised max_id takes effect after it. Age is checked by a timer and at one call in 64, so a process
// that was paused may give out fewer than 64 of them before it notices; and for at most five seconds more, where the
// whole machine was suspended. While natsid is out of reach, calls get held IDs.
//
// n is at least 1, and at most the limit of the workers. maxAge is at most [subjects.MaxPrefetchAge]. Each discarded
// range is a hole. IDs of a strict tag are not held, since other callers get higher ones in that time: workers refuse
// Prefetch for it, and calls fail with [ErrBadRequest].
func Prefetch(n int, maxAge time.Duration) HandleOption {
	return func(h *Handle) {
		if n < 1 || maxAge <= 0 || maxAge > subjects.MaxPrefetchAge {
			h.fault = subjects.Errorf(subjects.BadRequest, "prefetch %d, %v: want at least 1, and an age up to %v",
				n, maxAge, subjects.MaxPrefetchAge)
			return
		}
		h.stock = newStock(h.target, n, maxAge)
	}
}

func newHandle(c *Client, subject string, fault error, opts []HandleOption) *Handle {
	h := &Handle{target: &target{client: c, subject: subject}}
	h.target.most = DefaultMaxBatch
	for _, opt := range opts {
		opt(h)
	}
	h.target.limit.Store(h.target.most)
	if fault != nil {
		h.fault = fault
	}
	if h.fault != nil {
		h.stock = nil
	}
	h.merger = newMerger(h.target)
	return h
}

// Next returns one ID. Concurrent calls share requests: the ID is from a request that
// was sent after the call began, unless the handle has the option [Prefetch].
//
// It asks again after refusals that another worker may not repeat, after silence, and after a lost connection, until
// ctx ends. A ctx without a deadline ends after the client's [Timeout]. A call may return up to 20 ms after ctx has
// ended. IDs for which no call waits any longer are holes.
//
// The error is [ErrBadRequest], [ErrUnknownTag], [ErrUsedUp], [ErrNotNatsid], [ErrBusy], [ErrClosed], [ErrUnavailable]
// while workers wait for an operator, or that of ctx, which then wraps the reason why there was no ID, such as
// [ErrNotServed], [ErrUnavailable] or [ErrThrottled].
func (h *Handle) Next(ctx context.Context) (subjects.ID, error) {
	if k := h.stock; k != nil {
		s, i := k.place()
		if s.isPlain(i) {
			return s.first + subjects.ID(i), nil
		}
		return k.next(ctx, s, i)
	}
	end := h.target.client.begin(ctx, Call{Subject: h.target.subject, IDs: 1})
	g, i, err := h.join(ctx)
	if err != nil {
		end(err)
		return 0, err
	}
	// The call waits in this function, not in a callee: the less stack a call has while it waits, the less memory is
	// fetched to wake it, which is the main cost with 10,000 calls.
	woken, patient := g.wakes(ctx)
	<-woken
	id, err := g.id(ctx, i, patient)
	end(err)
	return id, err
}

func (h *Handle) join(ctx context.Context) (*group, int64, error) {
	if h.fault != nil {
		return nil, 0, refusal(h.fault)
	}
	return h.merger.join(ctx)
}

// NextN returns n IDs, which are requested for this call alone. n is at least 1, and at most the limit of the
// workers: 100,000 by default. Errors are those of [Handle.Next].
func (h *Handle) NextN(ctx context.Context, n int) (runs subjects.Runs, err error) {
	end := h.target.client.begin(ctx, Call{Subject: h.target.subject, IDs: n})
	defer func() { end(err) }()
	if h.fault != nil {
		return nil, refusal(h.fault)
	}
	if n < 1 {
		return nil, refusal(subjects.Errorf(subjects.BadRequest, "%d IDs: want at least 1", n))
	}
	ctx, cancel := h.target.client.bounded(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("client: %s: %w", h.target.subject, err)
	}
	done := make(chan answer, 1)
	f := &flight{
		target: h.target, n: n,
		wanted: func() bool { return ctx.Err() == nil }, done: func(a answer) { done <- a },
	}
	f.launch()
	select {
	case a := <-done:
		if errors.Is(a.err, errUnwanted) { // the flight noticed the end of ctx before this call did
			return nil, h.target.gaveUp(ctx.Err())
		}
		return a.runs, a.err
	case <-ctx.Done():
		return nil, h.target.gaveUp(ctx.Err())
	}
}

// A Source gives IDs, as a [Handle] does. A program that takes a Source can be tested with one from memory: see the
// package clienttest.
type Source interface {
	Next(ctx context.Context) (subjects.ID, error)
	NextN(ctx context.Context, n int) (subjects.Runs, error)
}

var _ Source = (*Handle)(nil)
