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

// A Lease lets a program with a generator of its own use a number while its window lasts. It is for one goroutine.
//
// Law: the times in the program's IDs are within the window, as rule (1) of docs/uniqueness.md demands, if the program
// ends before the lease does. Nobody knows its IDs. So only Release lowers the end of the window: not below any time at
// which Until was called, nor below the present time and a margin. Without a Release, nobody takes the number until the
// window ends.
type Lease struct {
	h *Holder
	g *snowflake.Generator // the holder's; its last tick stands for the program's last one
}

// Lease returns the lease of the present number, once the clock has reached the begin of its window, the time in which
// the number may be used.
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

// Until returns the time by which the program must have ended. lost is why it must end at once; nil if it need not.
func (l *Lease) Until() (until time.Time, lost error) {
	if _, err := l.g.NextAt(now(), 1); errors.Is(err, snowflake.ErrClosed) {
		lost = l.h.explain(fmt.Errorf("the worker number %d is lost", l.g.Worker()))
	}
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return time.UnixMilli(l.g.Until()), cmp.Or(lost, l.h.stopped)
}

// Release gives the number back after the program has ended. The error is why it stays blocked for its window.
func (l *Lease) Release() error {
	margin := max(l.h.cfg.MaxClockSkew, time.Second) + 2*max(snowflake.DefaultMaxAhead, l.h.tick())
	if _, err := l.g.NextAt(now()+margin.Milliseconds(), 1); err != nil {
		return err
	}
	return l.h.Close()
}
