package client

import (
	"context"
	"sync/atomic"
	"time"
)

// Gathered returns how many calls wait for a batch that has not left.
func (h *Handle) Gathered() int64 { return h.merger.gathering.Load().count() }

// HungBatch returns calls of a batch that nothing answers, a function that turns them
// slow, and a function that answers them. A call without a deadline may take as long as the timeout.
func HungBatch(timeout time.Duration) (call func(context.Context) error, turnSlow, answer func()) {
	b := newMerger(&target{client: &Client{timeout: timeout}}).newBatch(1)
	return func(ctx context.Context) error {
		woken, patient := b.first.wakes(ctx)
		<-woken
		_, err := b.first.id(ctx, 0, patient)
		return err
	}, b.turnSlow, func() { b.answer(Runs{{First: 1, Last: 1}}, nil) }
}

// PatienceAfter returns how long an answer may take where others took so long.
func PatienceAfter(took ...time.Duration) time.Duration {
	s := new(target)
	for _, d := range took {
		s.learn(d)
	}
	return s.patience()
}

// ParseRuns reads a reply to a request for n IDs.
var ParseRuns = parseRuns

// Suspend has a function returned that makes the wall clock of a client go ahead, and no
// other clock, as when its machine was suspended. It is called before the first handle.
func (c *Client) Suspend() (suspend func(time.Duration)) {
	var ahead atomic.Int64
	c.wall = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	return func(d time.Duration) { ahead.Add(int64(d)) }
}
