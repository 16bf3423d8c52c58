// Package client asks natsid for IDs over NATS.
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
// within 1.5 s; a client must wait longer than they do.
const DefaultTimeout = 2 * time.Second

// ErrNotServed is returned when no worker serves the subject. Nobody has seen
// the request.
var ErrNotServed = errors.New("client: nobody serves this")

// ErrNotNatsid is returned when the reply is none of natsid's.
var ErrNotNatsid = errors.New("client: the reply is not natsid's")

// A Client asks the workers of one namespace. It is safe for concurrent use.
type Client struct {
	nc *nats.Conn
	ns subjects.Namespace
}

// New returns a client on a connection, which stays the caller's. The
// namespace of workers is "id" unless they were started with another.
func New(nc *nats.Conn, ns subjects.Namespace) *Client { return &Client{nc: nc, ns: ns} }

// Segment returns one ID of a tag.
func (c *Client) Segment(ctx context.Context, tag string) (int64, error) {
	return one(c.SegmentN(ctx, tag, 1))
}

// SegmentN returns n IDs of a tag, n at least 1.
//
// The error is a [*subjects.Error] if a worker refused, [ErrNotServed] if
// there is none, [ErrNotNatsid], or that of ctx. A request that was refused
// with 503, or that nobody served, has been sent again at once by then.
func (c *Client) SegmentN(ctx context.Context, tag string, n int) ([]subjects.Run, error) {
	if err := subjects.CheckTag(tag); err != nil {
		return nil, err
	}
	return c.ids(ctx, c.ns.Segment(tag), n)
}

// Snowflake returns one snowflake.
func (c *Client) Snowflake(ctx context.Context) (int64, error) {
	return one(c.SnowflakeN(ctx, 1))
}

// SnowflakeN returns n snowflakes, n at least 1. Errors are those of
// [Client.SegmentN].
func (c *Client) SnowflakeN(ctx context.Context, n int) ([]subjects.Run, error) {
	return c.ids(ctx, c.ns.Snowflake(), n)
}

// CreateTag makes a tag. Errors are those of [Client.SegmentN], but it is sent
// once: sent again after a failure it could find the tag made by itself.
func (c *Client) CreateTag(ctx context.Context, t subjects.TagCreate) (made subjects.TagInfo, err error) {
	if err := subjects.CheckTag(t.Tag); err != nil {
		return subjects.TagInfo{}, err
	}
	return c.tag(ctx, c.ns.TagCreate(), t.Tag, t)
}

// UpdateTag changes a tag and returns it as it stands then: other workers than
// the one that answered know it a moment later. Errors are those of
// [Client.SegmentN], but it is sent once: sent again after a failure RaiseBy
// could raise max_id twice.
func (c *Client) UpdateTag(ctx context.Context, u subjects.TagUpdate) (subjects.TagInfo, error) {
	if err := u.Check(); err != nil {
		return subjects.TagInfo{}, err
	}
	return c.tag(ctx, c.ns.TagUpdate(), u.Tag, u)
}

// DeleteTag deletes a tag: it is served no more, and keeps its max_id, so that
// it goes on above if it is made again. Errors are those of [Client.SegmentN];
// a tag that was deleted before is none.
func (c *Client) DeleteTag(ctx context.Context, tag string) (subjects.TagInfo, error) {
	if err := subjects.CheckTag(tag); err != nil {
		return subjects.TagInfo{}, err
	}
	return c.tag(ctx, c.ns.TagDelete(), tag, subjects.TagDelete{Tag: tag})
}

// tag sends a request that is answered with the tag it is about.
func (c *Client) tag(ctx context.Context, subject, tag string, ask any) (info subjects.TagInfo, err error) {
	err = c.json(ctx, subject, ask, &info)
	if err == nil && info.Tag != tag {
		err = c.foreign(subject, fmt.Errorf("it is about tag %q", info.Tag))
	}
	return info, err
}

// ListTags returns a page of tags in their order, at most as many as are asked
// for, and none only past the last. With l.Stats each tells what one worker
// knows of it, the one that answers: other pages may be of another. Errors are
// those of [Client.SegmentN].
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
	var body []byte // empty asks for one
	if n != 1 {
		body = strconv.AppendInt(nil, int64(n), 10)
	}
	reply, err := c.request(ctx, subject, body)
	if err != nil {
		return nil, err
	}
	runs, err := subjects.ParseRuns(reply)
	if err != nil {
		return nil, c.foreign(subject, err)
	}
	left := int64(n)
	for _, r := range runs {
		if r.Last-r.First >= left { // not by Len, which can overflow
			left = -1
			break
		}
		left -= r.Len()
	}
	if left != 0 {
		return nil, c.foreign(subject, fmt.Errorf("not the %d IDs that were asked", n))
	}
	return runs, nil
}

func (c *Client) json(ctx context.Context, subject string, ask, answer any) error {
	body, err := json.Marshal(ask)
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
		return c.foreign(subject, err)
	}
	return nil
}

// foreign explains a reply that no worker would send.
func (c *Client) foreign(subject string, err error) error {
	return fmt.Errorf("%w: %w; does a JetStream stream or another program listen on %s?", ErrNotNatsid, err, subject)
}

// request sends a request, and once more if another worker may serve it.
func (c *Client) request(ctx context.Context, subject string, body []byte) ([]byte, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	reply, err := c.try(ctx, subject, body)
	if e, ok := errors.AsType[*subjects.Error](err); ok && e.Code == subjects.Unavailable || errors.Is(err, ErrNotServed) {
		again, err2 := c.try(ctx, subject, body)
		if !errors.Is(err2, context.DeadlineExceeded) { // else the first answer says more
			return again, err2
		}
	}
	return reply, err
}

// bounded returns ctx with a deadline, if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

func (c *Client) notServed(subject string) error {
	return fmt.Errorf("%w: no worker on %s; is natsid running on this NATS, in this namespace?", ErrNotServed, subject)
}

func (c *Client) try(ctx context.Context, subject string, body []byte) ([]byte, error) {
	msg, err := c.nc.RequestWithContext(ctx, subject, body)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, c.notServed(subject)
	}
	if err != nil {
		return nil, fmt.Errorf("client: %s: %w", subject, err)
	}
	if e := subjects.ParseError(msg.Header.Get(subjects.HeaderErrorCode), msg.Header.Get(subjects.HeaderError)); e != nil {
		return nil, e
	}
	return msg.Data, nil
}
