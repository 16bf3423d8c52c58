package holder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/snowflake"
)

// A Lease is the use of a number by a program with a generator of its own. It is not safe for concurrent use.
//
// Law: the program is the owner's process of rule (1) in docs/uniqueness.md, as long as it ends before the lease. What
// it issued is not known. So nothing but Release lowers the end of the window: never below the clock as it was read at
// any call of Until, nor below the margin ahead of it now. Without a Release the number rests after this process.
type Lease struct {
	h *Holder
	g *snowflake.Generator // of the holder, which runs with the program's
}

// Lease returns the lease of the number that was acquired, once the clock has reached its window.
func (h *Holder) Lease(ctx context.Context) (*Lease, error) {
	g, err := h.issuer.Generator(), h.explain(snowflake.ErrNoNumber)
	if g != nil {
		err = jitter.Sleep(ctx, time.UnixMilli(g.From()).Sub(time.Now().Round(0)))
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return &Lease{h, g}, nil
}

// Number returns the number.
func (l *Lease) Number() int { return l.g.Worker() }

// Until returns the time by which the program must have ended, or why it must end at once.
func (l *Lease) Until() (until time.Time, lost error) {
	if _, err := l.g.NextAt(now(), 1); errors.Is(err, snowflake.ErrClosed) {
		lost = l.h.explain(fmt.Errorf("the worker number %d is lost", l.g.Worker()))
	}
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return time.UnixMilli(l.g.Until()), cmp.Or(lost, l.h.stopped)
}

// Release gives the number back after the program has ended. The error says why it rests instead.
func (l *Lease) Release() error {
	margin := max(l.h.cfg.MaxClockSkew, time.Second) + 2*max(snowflake.DefaultMaxAhead, l.h.tick())
	if _, err := l.g.NextAt(now()+margin.Milliseconds(), 1); err != nil {
		return err
	}
	return l.h.Close()
}
