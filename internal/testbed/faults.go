package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// Stall holds requests for IDs back until d has passed. If d is 0, it lasts until [Cluster.Resume].
func (c *Cluster) Stall(d time.Duration) { c.play(&fault{kind: stalls}, d) }

// Refuse answers requests for IDs with an error until d has passed. If d is 0, it lasts until [Cluster.Resume]. It
// returns an error if natsid has no such code.
func (c *Cluster) Refuse(code subjects.Code, d time.Duration) error {
	var all []subjects.Code
	for _, info := range subjects.Codes() {
		all = append(all, info.Code)
	}
	if !slices.Contains(all, code) {
		return subjects.Errorf(subjects.BadRequest, "natsid has no code %d, but %v", code, all)
	}
	refusal := subjects.Errorf(code, "refused, as the test orders")
	if code == subjects.TooMany {
		refusal.RetryAfter = 150 * time.Millisecond // as a worker with the default deadline
	}
	c.play(&fault{refuses, refusal}, d)
	return nil
}

// DropReplies drops the replies to requests for IDs until d has passed: their IDs are lost. If d is 0, it lasts until
// [Cluster.Resume].
func (c *Cluster) DropReplies(d time.Duration) { c.play(&fault{kind: drops}, d) }

// Resume ends the present fault. Requests that were held back are then sent to workers.
func (c *Cluster) Resume() { c.play(new(fault), 0) }

// Restart stops all running workers cleanly, and starts them again. In between no worker serves.
func (c *Cluster) Restart() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.each(func(i int) error {
		if !c.workers[i].running() {
			return nil
		}
		return errors.Join(c.end(i), c.begin(i))
	})
}

// skipWithin bounds how long Skip may take to raise all tags.
const skipWithin = 10 * time.Second

// Skip raises the next ID of each tag by at least n. It returns an error if there is no tag, or if some tags cannot be
// raised so far; the others are raised. One worker issues the higher IDs at once, the others a moment later.
func (c *Cluster) Skip(n int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), skipWithin)
	defer cancel()
	ids := client.Must(client.New(c.conn, client.Config{Namespace: c.cfg.Namespace}))
	defer ids.Close()
	skip := wire.TagUpdate{RaiseBy: new(subjects.ID(n)), Force: true}
	var refused []string
	for list := (subjects.TagList{}); ; {
		page, err := ids.ListTags(ctx, list)
		if err != nil {
			return fmt.Errorf("the tags cannot be listed: %w", err)
		}
		for _, tag := range page {
			if list.After = tag.Tag; tag.Disabled {
				continue
			}
			skip.Tag = tag.Tag
			if err := c.update(ctx, skip); err != nil {
				refused = append(refused, fmt.Sprintf("tag %s: %v", tag.Tag, err))
			}
		}
		switch {
		case len(page) > 0: // there may be more
		case skip.Tag == "":
			return subjects.Errorf(subjects.NotFound, "skip: there is no tag yet; request an ID, then skip")
		case refused != nil:
			return subjects.Errorf(subjects.BadRequest, "skip: %s", strings.Join(refused, "; "))
		default:
			return nil
		}
	}
}

func (c *Cluster) update(ctx context.Context, u wire.TagUpdate) error {
	body, err := json.Marshal(u)
	if err != nil {
		return err
	}
	m, err := c.conn.RequestWithContext(ctx, c.cfg.Namespace.TagUpdate(), body)
	if err != nil {
		return err
	}
	if refused := subjects.ParseError(m.Header); refused != nil {
		return refused
	}
	return nil
}
