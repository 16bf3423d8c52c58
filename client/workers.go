package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// quietTime is how long after one worker's answer the next may arrive.
const quietTime = 300 * time.Millisecond

// Workers returns the statistics of all workers that answer, in the order of their names. The number of workers is
// unknown, so it waits until none has answered for 0.3 s, or until ctx ends: a call takes at least 0.3 s. Errors are
// [ErrNotServed], [ErrNotNatsid], or that of ctx if no worker answered.
func (c *Client) Workers(ctx context.Context) ([]subjects.WorkerStats, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("client: subscribe to replies: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // it fails only on a closed connection
	if err := c.nc.PublishRequest(c.ns.ServiceStats(), inbox, nil); err != nil {
		return nil, fmt.Errorf("client: request on %s: %w", c.ns.ServiceStats(), err)
	}
	all, err := c.collect(ctx, sub)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(x, y subjects.WorkerStats) int { return cmp.Compare(x.Instance, y.Instance) })
	return all, nil
}

// collect returns the answers that arrive until none has arrived for quietTime.
func (c *Client) collect(ctx context.Context, sub *nats.Subscription) (all []subjects.WorkerStats, err error) {
	subject := c.ns.ServiceStats()
	for wait, heard := ctx, false; ; heard = true {
		msg, err := sub.NextMsgWithContext(wait)
		switch {
		case errors.Is(err, nats.ErrNoResponders), err != nil && heard && len(all) == 0:
			return nil, notServed(subject)
		case err != nil && !heard:
			return nil, fmt.Errorf("client: request on %s: %w", subject, err)
		case err != nil:
			return all, nil
		}
		w, serves, err := parseStats(msg.Data)
		if err != nil {
			return nil, c.notNatsid(subject, err)
		}
		if serves {
			all = append(all, w)
		}
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, quietTime)
		defer cancel() // one per worker
	}
}

// parseStats returns the statistics in the answer of a NATS service, and reports
// whether it has any: a worker that does not serve segments at the moment has none.
func parseStats(body []byte) (w subjects.WorkerStats, serves bool, err error) {
	var answer struct {
		Endpoints []struct {
			Name string          `json:"name"`
			Data json.RawMessage `json:"data"`
		} `json:"endpoints"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return w, false, err
	}
	for _, e := range answer.Endpoints {
		if e.Name == subjects.SegmentEndpoint {
			err := json.Unmarshal(e.Data, &w)
			return w, true, err
		}
	}
	if answer.Endpoints == nil {
		return w, false, errors.New("it holds no statistics of tags")
	}
	return w, false, nil
}
