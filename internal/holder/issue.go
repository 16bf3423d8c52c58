package holder

import (
	"context"
	"errors"
	"fmt"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// Next issues a snowflake: see package number.
//
// Law: the generator issues only ticks of its window, whatever the clock shows, and each position once. So a process
// that was paused within this call issues no tick of the next owner.
func (h *Holder) Next(ctx context.Context) (subjects.ID, error) {
	if g := h.issuer.Generator(); g != nil { // faster than the issuer
		if runs, err := g.NextAt(now(), 1); err == nil {
			return runs.First(), nil
		}
	}
	runs, err := h.next(ctx, 1)
	if err != nil {
		return 0, err
	}
	return runs.First(), nil
}

// NextN issues n snowflakes, 1 to [client.MaxIDs].
func (h *Holder) NextN(ctx context.Context, n int) (all subjects.Runs, err error) {
	if n < 1 || n > client.MaxIDs {
		return nil, fmt.Errorf("%w: %d IDs: want 1 to %d", client.ErrBadRequest, n, client.MaxIDs)
	}
	for most := int(h.layout.PerTick()); n > 0; {
		runs, err := h.next(ctx, min(n, most))
		if err != nil {
			return nil, err
		}
		for first, last := range runs.All() {
			all = append(all, subjects.Run{First: first, Last: last})
		}
		n -= runs.Len()
	}
	return all, nil
}

// next issues n IDs. If a burst has run ahead of the clock, it waits for the clock.
func (h *Holder) next(ctx context.Context, n int) (runs snowflake.Runs, err error) {
	for {
		if runs, err = h.issuer.Next(n); err == nil {
			return runs, nil
		}
		if !errors.Is(err, issuer.ErrWait) {
			return runs, h.explain(err)
		}
		if err := jitter.Sleep(ctx, h.tick()); err != nil {
			return runs, err
		}
	}
}
