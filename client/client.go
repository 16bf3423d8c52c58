package client

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// DefaultTimeout bounds a call whose context has no deadline. Workers answer within 1.5 s unless configured
// otherwise, so there is time to ask another worker.
const DefaultTimeout = 5 * time.Second

// handlesMost is how many handles a client remembers, so that calls share requests: some 1 KB each. Beyond that
// number a program loses some sharing, and memory stays bounded.
const handlesMost = 10_000

// A Client requests IDs from the workers of one namespace. It is safe for
// concurrent use.
type Client struct {
	nc          *nats.Conn
	ns          subjects.Namespace
	timeout     time.Duration
	failsFast   bool
	log         *slog.Logger                            // nil means slog.Default
	foreign     sync.Once                               // logs the first ErrNotNatsid
	observeCall func(context.Context, Call) func(error) // nil means none
	inbox       inbox
	wall        func() time.Time

	mu      sync.Mutex
	handles map[string]*Handle // those without options, by subject
}

// An Option changes a [Client].
type Option func(*Client)

// Namespace is the namespace of the workers. The default is [subjects.DefaultNamespace].
func Namespace(ns string) Option { return func(c *Client) { c.ns = subjects.Namespace(ns) } }

// Timeout bounds calls whose context has no deadline. The default, also for 0, is [DefaultTimeout].
func Timeout(d time.Duration) Option {
	return func(c *Client) { c.timeout = cmp.Or(d, DefaultTimeout) }
}

// FailFast has calls for IDs fail with [ErrNotServed] at once where no worker serves them, instead of asking again
// until their context ends. That may be so for a moment, as while the only worker restarts.
func FailFast() Option { return func(c *Client) { c.failsFast = true } }

// Log receives messages for an operator. There is one: the first [ErrNotNatsid], since a program that answers in
// natsid's place is for an operator to stop. The default, also for nil, is [slog.Default].
func Log(l *slog.Logger) Option { return func(c *Client) { c.log = l } }

// ObserveCalls has f called at the beginning of each call, with the context of the caller, and the function that it
// returns, unless that is nil, at the end, with the error that the call returns: for a span as a child of the
// caller's, or for metrics. Neither must block, and both may be called concurrently. Calls that get an ID held by
// [Prefetch] are not observed, since they take nanoseconds and wait for nothing.
func ObserveCalls(f func(context.Context, Call) func(error)) Option {
	return func(c *Client) { c.observeCall = f }
}

// New returns a client on a connection, which the caller closes. It sends nothing before the first call. It panics if
// nc is nil.
func New(nc *nats.Conn, opts ...Option) *Client {
	if nc == nil {
		panic("client: New needs a connection, and has nil: did nats.Connect return an error?")
	}
	c := &Client{
		nc: nc, ns: subjects.DefaultNamespace, timeout: DefaultTimeout, wall: time.Now,
		handles: make(map[string]*Handle),
	}
	for _, opt := range opts {
		opt(c)
	}
	c.inbox.nc = nc
	return c
}

// Close ends the client's subscription to replies. Calls for IDs, under way or later, fail with [ErrClosed], but
// prefetched IDs are given out until they are used up or too old. The connection stays open. A caller that closes the
// connection need not close the client.
func (c *Client) Close() { c.inbox.close() }

// Segment returns the handle of a tag. Without options it is the same for all callers, who share its requests; with
// options each call returns a new handle. If the tag is malformed, the calls of the handle return [ErrBadRequest].
func (c *Client) Segment(tag string, opts ...HandleOption) *Handle {
	return c.handle(c.ns.Segment(tag), subjects.CheckTag(tag), opts)
}

// Snowflake returns the handle of snowflakes, of business 0 without the option
// [Business]. Without options it is the same for all callers.
func (c *Client) Snowflake(opts ...HandleOption) *Handle {
	return c.handle(c.ns.Snowflake(), nil, opts)
}

func (c *Client) handle(subject string, fault error, opts []HandleOption) *Handle {
	if err := c.ns.Check(); err != nil {
		fault = subjects.Errorf(subjects.BadRequest, "%v", err)
	}
	if len(opts) > 0 || fault != nil {
		return newHandle(c, subject, fault, opts)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.handles[subject]
	if h == nil {
		if len(c.handles) == handlesMost {
			clear(c.handles) // callers keep the handles that they hold
		}
		h = newHandle(c, subject, nil, nil)
		c.handles[subject] = h
	}
	return h
}
