package stage

import (
	"context"
	"time"
)

// A pace keeps a rate of messages. One goroutine uses it.
type pace struct {
	most int           // most messages of a batch
	each time.Duration // between messages; 0: no limit
	due  time.Time     // of the next batch
}

func newPace(rate int) *pace {
	if rate <= 0 {
		return &pace{most: batchMessages}
	}
	// At low rates batches come every 100 ms, so that messages are spread evenly.
	return &pace{most: min(batchMessages, max(1, rate/10)), each: time.Second / time.Duration(rate)}
}

// wait waits until a batch of n messages may be sent, or ctx ends.
func (p *pace) wait(ctx context.Context, n int) {
	if p.each == 0 {
		return
	}
	now := time.Now()
	if p.due.After(now) {
		sleep(ctx, p.due.Sub(now))
		now = p.due
	}
	p.due = now.Add(time.Duration(n) * p.each)
}
