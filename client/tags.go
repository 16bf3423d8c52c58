package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// CreateTag creates a tag and returns it.
//
// The error is that of a refusal, such as [ErrBadRequest], or [ErrNotServed], [ErrNotNatsid], or that of ctx. The
// request is sent once: repeated after a failure it could find the tag that it created itself.
func (c *Client) CreateTag(ctx context.Context, t subjects.TagCreate) (created subjects.TagInfo, err error) {
	if err := subjects.CheckTag(t.Tag); err != nil {
		return subjects.TagInfo{}, refusal(err)
	}
	return c.tag(ctx, c.ns.TagCreate(), t.Tag, t)
}

// UpdateTag changes a tag and returns the changed tag. The worker that answers applies the change at once, the others
// a moment later. Errors are those of [Client.CreateTag]. The request is sent once: repeated after a failure RaiseBy
// could raise max_id twice.
func (c *Client) UpdateTag(ctx context.Context, u subjects.TagUpdate) (subjects.TagInfo, error) {
	if err := u.Check(); err != nil {
		return subjects.TagInfo{}, refusal(err)
	}
	return c.tag(ctx, c.ns.TagUpdate(), u.Tag, u)
}

// DeleteTag deletes a tag and returns the deleted tag. The tag is no longer served, and keeps its max_id: created
// again, it continues above its old IDs. Deleting a deleted tag succeeds. Errors are those of [Client.CreateTag]. The
// request is sent once.
func (c *Client) DeleteTag(ctx context.Context, tag string) (subjects.TagInfo, error) {
	if err := subjects.CheckTag(tag); err != nil {
		return subjects.TagInfo{}, refusal(err)
	}
	return c.tag(ctx, c.ns.TagDelete(), tag, subjects.TagDelete{Tag: tag})
}

// Throttle throttles a tag, or each tag, or ends a throttle, and returns the throttles then in force; the zero
// request changes nothing. It is for operators. The worker that answers applies the change at once, the others a
// moment later. Errors are those of [Client.CreateTag]. The request is sent once.
func (c *Client) Throttle(ctx context.Context, t subjects.Throttle) (now subjects.Throttles, err error) {
	if err := t.Check(); err != nil {
		return now, refusal(err)
	}
	err = c.json(ctx, c.ns.Throttle(), t, &now)
	if err == nil && now.Tags == nil {
		err = c.notNatsid(c.ns.Throttle(), errors.New("it lacks the throttles"))
	}
	return now, err
}

// tag sends a request about a tag; the answer must be about the same tag.
func (c *Client) tag(ctx context.Context, subject, tag string, req any) (info subjects.TagInfo, err error) {
	if err := c.json(ctx, subject, req, &info); err != nil {
		return info, err
	}
	if info.Tag != tag {
		return info, c.notNatsid(subject, fmt.Errorf("it is about tag %q", info.Tag))
	}
	return info, nil
}

// ListTags returns a page of tags in their order. It may be shorter than l.Limit, and is empty only past the last
// tag. With l.Stats each tag has the statistics of the worker that answered: the next page may be from another
// worker. Errors are those of [Client.CreateTag]. The request is sent once.
func (c *Client) ListTags(ctx context.Context, l subjects.TagList) (page []subjects.TagInfo, err error) {
	err = c.json(ctx, c.ns.TagList(), l, &page)
	return page, err
}

// json sends a request once, and decodes the answer.
func (c *Client) json(ctx context.Context, subject string, req, answer any) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	msg, err := c.nc.RequestWithContext(ctx, subject, body)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return notServed(subject)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("client: no answer on %s; look whether it was done before you ask again: %w", subject, err)
	case isClosed(err):
		return fmt.Errorf("%w: request on %s: %w", ErrClosed, subject, err)
	case err != nil:
		return fmt.Errorf("client: request on %s: %w", subject, err)
	}
	if err := refused(msg); err != nil {
		return err
	}
	if err := json.Unmarshal(msg.Data, answer); err != nil {
		return c.notNatsid(subject, err)
	}
	return nil
}

// bounded returns ctx with a deadline, if it has none.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.timeout)
}
