//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
)

// patience is how long a call through package client may take.
const patience = 5 * time.Second

// callsPer is how many requests of a load are sent for each call through package client.
const callsPer = 4

// Callers request IDs through package client, beside the bare requests of a load, and leave the handling of faults to
// the client, as a service does. Their IDs go into the ledgers of the load. The methods are safe for concurrent use.
type callers struct {
	load    *load
	clients []*caller

	mu       sync.Mutex
	begun    int64
	longest  wait
	failures []failure
}

// A caller is a service: a client on a connection of its own.
type caller struct {
	nc      *nats.Conn
	ids     *client.Client
	handles [kinds]*client.Handle
}

// A wait is the duration of a call, with or without IDs.
type wait struct {
	kind kind
	at   time.Duration // when the call began, since the start of the load
	took time.Duration
}

func (w wait) String() string {
	return fmt.Sprintf("%.3f s for %v, from %.3f s on", w.took.Seconds(), w.kind, w.at.Seconds())
}

// newCallers connects a client to each of the servers.
func newCallers(l *load, urls []string) (*callers, error) {
	c := &callers{load: l}
	for i := range urls {
		// The options of a service: a server that hangs is left within 2 s.
		nc, err := nats.Connect(strings.Join(nearest(urls, i), ","), nats.Name("faults client"), nats.DontRandomize(),
			nats.MaxReconnects(-1), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(1),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				if errors.Is(err, nats.ErrSlowConsumer) {
					l.invalidate(err)
				}
			}))
		if err != nil {
			c.close()
			return nil, err
		}
		ids := client.Must(client.New(nc, client.Config{Namespace: namespace}))
		of := func(tag string) *client.Handle { return client.Must(ids.Segment(tag, client.SegmentConfig{})) }
		c.clients = append(c.clients, &caller{nc: nc, ids: ids, handles: [kinds]*client.Handle{
			snowflake: client.Must(ids.Snowflake(client.SnowflakeConfig{})), long: of(longTag), short: of(shortTag),
			strict: of(strictTag),
		}})
	}
	return c, nil
}

func (c *callers) close() {
	for _, of := range c.clients {
		of.ids.Close()
		of.nc.Close()
	}
}

// run begins rate calls per second until ctx ends, then waits for the last of them.
func (c *callers) run(ctx context.Context, rate, batch int) {
	var calls sync.WaitGroup
	defer calls.Wait()
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for i := int64(0); ; {
		for due := int64(c.load.now().Seconds() * float64(rate)); i < due; i++ {
			calls.Go(func() { c.call(i, batch) })
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// call makes the i-th call, by the next client, and records its outcome.
func (c *callers) call(i int64, batch int) {
	what, n := mix[i%10].kind, 1
	if mix[i%10].batch {
		n = batch
	}
	by := c.clients[(i+i/10)%int64(len(c.clients))] // each client makes calls of each kind
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	at := c.load.now()
	err := c.next(ctx, by, what, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun++
	if took := c.load.now() - at; took > c.longest.took {
		c.longest = wait{what, at, took}
	}
	if err == nil {
		return
	}
	outcome := outcomeOf(err)
	if outcome == "" {
		c.load.invalidate(err)
	}
	c.failures = append(c.failures, failure{what, outcome, at})
}

// next gets n IDs, and records them.
func (c *callers) next(ctx context.Context, by *caller, what kind, n int) error {
	began, sent := c.load.rising.begin(c.load.now()), time.Now()
	if n == 1 {
		id, err := by.handles[what].Next(ctx)
		if err != nil {
			return err
		}
		if what == strict {
			c.load.inOrder(began, int64(id), int64(id))
		}
		c.load.days.saw(what, sent, time.Now(), int64(id))
		return c.load.keep(what, int64(id), int64(id))
	}
	runs, err := by.handles[what].NextN(ctx, n)
	if err != nil {
		return err
	}
	for id := range runs.All() {
		c.load.days.saw(what, sent, time.Now(), int64(id))
		if err := c.load.keep(what, int64(id), int64(id)); err != nil {
			return err
		}
	}
	return nil
}

// outcomeOf returns the outcome for an error of package client, "" for an error that must not occur.
func outcomeOf(err error) string {
	for _, known := range []struct {
		err     error
		outcome string
	}{
		{client.ErrNotServed, noResponders}, {client.ErrUnavailable, "503"}, {client.ErrThrottled, "429"},
		{client.ErrUnknownTag, "404"}, {context.DeadlineExceeded, timeout},
	} {
		if errors.Is(err, known.err) {
			return known.outcome
		}
	}
	return ""
}

// failed returns the calls without IDs.
func (c *callers) failed() []failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]failure(nil), c.failures...)
}

// copies returns how many requests the clients sent for calls of a kind, and how many copies of them.
func (c *callers) copies(k kind) (sum client.Stats) {
	for _, of := range c.clients {
		s := of.handles[k].Stats()
		sum.Requests, sum.Hedges, sum.Retries = sum.Requests+s.Requests, sum.Hedges+s.Hedges, sum.Retries+s.Retries
	}
	return sum
}
