package testbed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/subjects"
)

// Stall lets requests for IDs wait for d before a worker gets them. A d of 0 lasts until [Cluster.Resume].
func (c *Cluster) Stall(d time.Duration) { c.proxy.play(fault{kind: stalls}, d) }

// Refuse answers requests for IDs with an error for d, also before a worker gets them. A d of 0 lasts until
// [Cluster.Resume]. It returns an error if natsid has no such code.
func (c *Cluster) Refuse(code subjects.Code, d time.Duration) error {
	f, err := refusal(code)
	if err == nil {
		c.proxy.play(f, d)
	}
	return err
}

func refusal(code subjects.Code) (f fault, err error) {
	var all []subjects.Code
	for _, info := range subjects.Codes() {
		all = append(all, info.Code)
	}
	if !slices.Contains(all, code) {
		return f, subjects.Errorf(subjects.BadRequest, "natsid has no code %d, but %v", code, all)
	}
	f = fault{refuses, subjects.Errorf(code, "refused, as the test orders")}
	if code == subjects.TooMany {
		f.refusal.RetryAfter = 150 * time.Millisecond // as a worker with the default deadline
	}
	return f, nil
}

// DropReplies drops the replies to requests for IDs that workers get within d: the IDs are a hole. A d of 0 lasts until
// [Cluster.Resume].
func (c *Cluster) DropReplies(d time.Duration) { c.proxy.play(fault{kind: drops}, d) }

// Resume ends the fault that lasts. Workers get the requests that wait.
func (c *Cluster) Resume() { c.proxy.play(fault{}, 0) }

// Restart stops all workers that run, cleanly, and starts them again. In between nobody serves.
func (c *Cluster) Restart() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ran := make([]bool, len(c.workers))
	for i, w := range c.workers {
		ran[i] = w.running()
	}
	return errors.Join(c.each(c.end), c.each(func(i int) error {
		if !ran[i] {
			return nil
		}
		return c.begin(i)
	}))
}

// skipWithin bounds a skip.
const skipWithin = 10 * time.Second

// Skip raises the next ID of each tag by at least n. Where several workers serve, all but one follow a moment later. It
// returns an error if there is no tag, or if one would exceed the highest ID.
func (c *Cluster) Skip(n int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), skipWithin)
	defer cancel()
	ids := client.New(c.conn, client.Namespace(string(c.cfg.Namespace)))
	defer ids.Close()
	by, skipped := subjects.Decimal(n), false
	for list := (subjects.TagList{}); ; {
		page, err := ids.ListTags(ctx, list)
		if err != nil {
			return fmt.Errorf("the tags cannot be listed: %w", err)
		}
		for _, tag := range page {
			if list.After = tag.Tag; tag.Disabled {
				continue
			}
			if _, err := ids.UpdateTag(ctx, subjects.TagUpdate{Tag: tag.Tag, RaiseBy: &by, Force: true}); err != nil {
				return fmt.Errorf("tag %s: %w", tag.Tag, err)
			}
			skipped = true
		}
		switch {
		case len(page) > 0:
		case skipped:
			return nil
		default:
			return subjects.Errorf(subjects.NotFound, "skip: there is no tag yet; request an ID, then skip")
		}
	}
}
