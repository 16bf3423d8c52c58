package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// CreateTag creates a tag and returns it.
//
// The error is that of a refusal, such as [ErrBadRequest] or [ErrTagExists], or [ErrNotServed], [ErrNotNatsid], or that
// of ctx. The request is sent once: a repetition after a lost reply would find the tag that the first one created.
func (c *Client) CreateTag(ctx context.Context, t subjects.TagCreate) (created subjects.TagInfo, err error) {
	if err := subjects.CheckTag(t.Tag); err != nil {
		return subjects.TagInfo{}, refusal(err)
	}
	subject := c.cfg.Namespace.TagCreate()
	if err := c.json(ctx, subject, t, &created); err != nil {
		return created, err
	}
	if created.Tag != t.Tag {
		return created, c.notNatsid(subject, fmt.Errorf("it is about tag %q", created.Tag))
	}
	return created, nil
}

// EnsureTag creates a tag, or revives a deleted one, unless it exists with the same settings. So a service may call it
// at each start, and again after an error. A zero field of t matches any value; t.Start matches any next ID that is not
// lower. If another setting differs, nothing is changed, and the error is [ErrTagExists]. Other errors are those of
// [Client.CreateTag].
func (c *Client) EnsureTag(ctx context.Context, t subjects.TagCreate) error {
	if err := subjects.CheckTag(t.Tag); err != nil {
		return refusal(err)
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var err error
	for range 2 { // another program may create the tag between the two requests
		var page []subjects.TagInfo
		if page, err = c.ListTags(ctx, subjects.TagList{Tag: t.Tag}); err != nil {
			return err
		}
		if len(page) > 0 && !page[0].Disabled {
			return c.agrees(page[0], t)
		}
		if _, err = c.CreateTag(ctx, t); !errors.Is(err, ErrTagExists) {
			return err
		}
	}
	return err
}

// agrees returns nil if a tag has the wanted settings, else an error that names a setting that differs.
func (c *Client) agrees(is subjects.TagInfo, want subjects.TagCreate) error {
	var differs string
	switch {
	case is.Tag != want.Tag:
		return c.notNatsid(c.cfg.Namespace.TagList(), fmt.Errorf("it is about tag %q", is.Tag))
	case want.Step != 0 && want.Step != is.Step:
		differs = fmt.Sprintf("step %d, want %d", is.Step, want.Step)
	case want.Start > is.NextID:
		differs = fmt.Sprintf("next_id %d, want at least %d", is.NextID, want.Start)
	case want.Description != "" && want.Description != is.Description:
		differs = fmt.Sprintf("description %q, want %q", is.Description, want.Description)
	case want.Period != "" && (want.Period != is.Period || want.Zone != is.Zone):
		differs = fmt.Sprintf("period %q of zone %q, want %q of %q", is.Period, is.Zone, want.Period, want.Zone)
	case want.Min != 0 && want.Min != is.Min || want.Max != 0 && want.Max != is.Max:
		differs = fmt.Sprintf("min %d and max %d, want %d and %d", is.Min, is.Max, want.Min, want.Max)
	case want.MaxHole != 0 && want.MaxHole != is.MaxHole:
		differs = fmt.Sprintf("max_hole %d, want %d", is.MaxHole, want.MaxHole)
	case want.Strict && !is.Strict:
		return fmt.Errorf("%w: tag %s is loose, want strict: make a tag of another name", ErrTagExists, is.Tag)
	default:
		return nil
	}
	return fmt.Errorf("%w: tag %s has %s; change it with natsid tag update", ErrTagExists, is.Tag, differs)
}

// ListTags returns a page of tags, in the order of names. The page may be shorter than l.Limit, and is empty only past
// the last tag. Errors are those of [Client.CreateTag]. The request is sent once.
func (c *Client) ListTags(ctx context.Context, l subjects.TagList) (page []subjects.TagInfo, err error) {
	err = c.json(ctx, c.cfg.Namespace.TagList(), l, &page)
	return page, err
}

// json sends a request about tags once, and decodes the answer.
func (c *Client) json(ctx context.Context, subject string, req, answer any) (err error) {
	if err := ctx.Err(); err != nil {
		return ended(subject, err)
	}
	began, caller := time.Now(), ctx
	defer func() { c.observe(caller, subject, began, 0, err) }()
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

// bounded returns ctx. If it has no deadline, it gets one after Config.Timeout.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.cfg.Timeout)
}
