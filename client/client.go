// Package client requests IDs from natsid over NATS.
//
// A call fails with a [*subjects.Error] if a worker refused it: its code says
// what to do, see [subjects.Codes]. It fails with [ErrNotServed] if there is no
// worker. After any failure IDs may be requested again: at worst some are never
// used.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// DefaultTimeout bounds a call whose context has no deadline. Workers answer
// within 1.5 s unless configured otherwise; a client must wait longer than they
// do.
const DefaultTimeout = 2 * time.Second

// ErrNotServed is returned when no worker serves the subject. No worker has
// seen the request.
var ErrNotServed = errors.New("client: no worker serves this")

// ErrNotNatsid is returned when a reply is not one of natsid's, as from another
// program or a JetStream stream on the same subject.
var ErrNotNatsid = errors.New("client: the reply is not natsid's")

// A Client requests IDs from the workers of one namespace. It is safe for
// concurrent use.
type Client struct {
	nc *nats.Conn
	ns subjects.Namespace
}

// New returns a client on a connection, which remains the caller's to close. ns
// is [subjects.DefaultNamespace] unless the workers were started with another.
func New(nc *nats.Conn, ns subjects.Namespace) *Client { return &Client{nc: nc, ns: ns} }

// Segment returns one ID of a tag, at least 1. Errors are those of
// [Client.SegmentN].
func (c *Client) Segment(ctx context.Context, tag string) (int64, error) {
	return one(c.SegmentN(ctx, tag, 1))
}

// SegmentN returns n IDs of a tag as runs. n is at least 1, and at most what the
// workers allow: 100,000 by default.
//
// The error is a [*subjects.Error] if a worker refused, [ErrNotServed] if there
// is none, [ErrNotNatsid], or that of ctx. A request that was refused with 503,
// or that no worker served, was repeated once.
func (c *Client) SegmentN(ctx context.Context, tag string, n int) ([]subjects.Run, error) {
	if err := subjects.CheckTag(tag); err != nil {
		return nil, err
	}
	return c.ids(ctx, c.ns.Segment(tag), n)
}

// Snowflake returns one snowflake, of business 0. Errors are those of
// [Client.SegmentN].
func (c *Client) Snowflake(ctx context.Context) (int64, error) {
	return one(c.SnowflakeN(ctx, 1))
}

// SnowflakeN returns n snowflakes, of business 0, as runs. n is at least 1, and
// at most what the workers allow. Errors are those of [Client.SegmentN].
func (c *Client) SnowflakeN(ctx context.Context, n int) ([]subjects.Run, error) {
	return c.ids(ctx, c.ns.Snowflake(), n)
}

// CreateTag creates a tag and returns it. Errors are those of [Client.SegmentN],
// but the request is sent once: repeated after a failure it could find the tag
// that it created itself.
func (c *Client) CreateTag(ctx context.Context, t subjects.TagCreate) (created subjects.TagInfo, err error) {
	if err := subjects.CheckTag(t.Tag); err != nil {
		return subjects.TagInfo{}, err
	}
	return c.tag(ctx, c.ns.TagCreate(), t.Tag, t)
}

// UpdateTag changes a tag and returns it as it is then. The worker that answers
// knows the change at once, the others a moment later. Errors are those of
// [Client.SegmentN], but the request is sent once: repeated after a failure
// RaiseBy could raise max_id twice.
func (c *Client) UpdateTag(ctx context.Context, u subjects.TagUpdate) (subjects.TagInfo, error) {
	if err := u.Check(); err != nil {
		return subjects.TagInfo{}, err
	}
	return c.tag(ctx, c.ns.TagUpdate(), u.Tag, u)
}

// RaiseTags raises a page of tags, for a store that was restored from a backup,
// and returns them; none after the last. Errors are those of [Client.SegmentN],
// but the request is sent once.
func (c *Client) RaiseTags(ctx context.Context, r subjects.TagRaise) (raised subjects.TagRaised, err error) {
	if err := r.Check(); err != nil {
		return raised, err
	}
	err = c.json(ctx, c.ns.TagRaise(), r, &raised)
	return raised, err
}

// DeleteTag deletes a tag and returns it as it is then. It is no longer served,
// and keeps its max_id: created again, it continues above its old IDs. To delete
// a deleted tag succeeds. Errors are those of [Client.SegmentN], but the request
// is sent once.
func (c *Client) DeleteTag(ctx context.Context, tag string) (subjects.TagInfo, error) {
	if err := subjects.CheckTag(tag); err != nil {
		return subjects.TagInfo{}, err
	}
	return c.tag(ctx, c.ns.TagDelete(), tag, subjects.TagDelete{Tag: tag})
}

// tag sends a request that is answered with the tag that it names.
func (c *Client) tag(ctx context.Context, subject, tag string, req any) (info subjects.TagInfo, err error) {
	if err := c.json(ctx, subject, req, &info); err != nil {
		return info, err
	}
	if info.Tag != tag {
		return info, c.notNatsid(subject, fmt.Errorf("it is about tag %q", info.Tag))
	}
	return info, nil
}

// ListTags returns a page of tags in their order. It may be shorter than
// l.Limit, and is empty only past the last tag. With l.Stats each tag shows what
// the worker that answered knows of it: the next page may be from another
// worker. Errors are those of [Client.SegmentN], but the request is sent once.
func (c *Client) ListTags(ctx context.Context, l subjects.TagList) (page []subjects.TagInfo, err error) {
	err = c.json(ctx, c.ns.TagList(), l, &page)
	return page, err
}

func one(runs []subjects.Run, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return runs[0].First, nil
}

func (c *Client) ids(ctx context.Context, subject string, n int) ([]subjects.Run, error) {
	var body []byte // empty requests one
	if n != 1 {
		body = strconv.AppendInt(nil, int64(n), 10)
	}
	reply, err := c.request(ctx, subject, body)
	if err != nil {
		return nil, err
	}
	runs, err := subjects.ParseRuns(reply)
	if err != nil {
		return nil, c.notNatsid(subject, err)
	}
	if !holds(runs, int64(n)) {
		return nil, c.notNatsid(subject, fmt.Errorf("it does not hold the %d IDs requested", n))
	}
	return runs, nil
}

// holds reports whether the runs are n IDs together.
func holds(runs []subjects.Run, n int64) bool {
	for _, r := range runs {
		if r.Last-r.First >= n { // not by Len, which can overflow
			return false
		}
		n -= r.Len()
	}
	return n == 0
}

// json sends a request once, and decodes the answer.
func (c *Client) json(ctx context.Context, subject string, req, answer any) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	reply, err := c.try(ctx, subject, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(reply, answer); err != nil {
		return c.notNatsid(subject, err)
	}
	return nil
}

// request sends a request, and repeats it once if another worker may serve it.
func (c *Client) request(ctx context.Context, subject string, body []byte) ([]byte, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	reply, err := c.try(ctx, subject, body)
	if !elsewhere(err) {
		return reply, err
	}
	again, againErr := c.try(ctx, subject, body)
	if errors.Is(againErr, context.DeadlineExceeded) {
		return nil, err // it says more
	}
	return again, againErr
}

// elsewhere reports whether another worker may serve a request that failed.
func elsewhere(err error) bool {
	e, ok := errors.AsType[*subjects.Error](err)
	return ok && e.Code == subjects.Unavailable || errors.Is(err, ErrNotServed)
}

// bounded returns ctx with a deadline, if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

// try sends a request and returns the body of the reply.
func (c *Client) try(ctx context.Context, subject string, body []byte) ([]byte, error) {
	msg, err := c.nc.RequestWithContext(ctx, subject, body)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, c.notServed(subject)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("client: no answer on %s: ask again, since the worker asked may hang: %w", subject, err)
	}
	if err != nil {
		return nil, fmt.Errorf("client: request on %s: %w", subject, err)
	}
	if e := subjects.ParseError(msg.Header); e != nil {
		return nil, e
	}
	return msg.Data, nil
}

func (c *Client) notServed(subject string) error {
	return fmt.Errorf("%w: no worker on %s; does natsid run on this NATS, in this namespace?", ErrNotServed, subject)
}

// notNatsid explains a reply that no worker sends.
func (c *Client) notNatsid(subject string, err error) error {
	return fmt.Errorf("%w: %w; does a JetStream stream or another program listen on %s?", ErrNotNatsid, err, subject)
}
