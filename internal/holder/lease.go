package holder

import (
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
// it issued is not known. So the keeper releases nothing by itself, and only Release lowers the end of the window:
// never below the clock as it was read at any call of Until, nor below the margin ahead of it now.
type Lease struct {
	h *Holder
	g *snowflake.Generator // of the holder, which runs with the program's
}

// Lease returns the lease of the number that was acquired, once the clock has reached its window.
func (h *Holder) Lease(ctx context.Context) (*Lease, error) {
	h.leased.Store(true)
	l := &Lease{h, h.gen.Load()}
	if l.g == nil {
		return nil, h.explain(snowflake.ErrNoNumber)
	}
	return l, jitter.Sleep(ctx, time.UnixMilli(l.g.From()).Sub(time.Now().Round(0)))
}

// Number returns the number.
func (l *Lease) Number() int { return l.g.Worker() }

// Until returns the time by which the program must have ended, or why it must end at once.
func (l *Lease) Until() (until time.Time, lost error) {
	until = time.UnixMilli(l.g.Until())
	if _, err := l.g.NextAt(now(), 1); errors.Is(err, snowflake.ErrClosed) {
		return until, fmt.Errorf("the worker number %d is lost: %w", l.g.Worker(), l.h.trouble())
	}
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return until, l.h.refused
}

// Release gives the number back after the program has ended. The error says why it rests instead.
func (l *Lease) Release() error {
	margin := max(l.h.cfg.MaxClockSkew, time.Second) + l.h.longest
	if _, err := l.g.NextAt(now()+margin.Milliseconds(), 1); err == nil {
		l.h.leased.Store(false)
	}
	return l.h.Close()
}

// Abandon ends the lease of a program that may issue for a while: the number rests.
func (l *Lease) Abandon() error { return l.h.Close() }

// atStop returns how long the keeper may take to release the number: not at all while it is leased.
func (h *Holder) atStop(usual time.Duration) time.Duration {
	if h.leased.Load() {
		return 0
	}
	return usual
}
