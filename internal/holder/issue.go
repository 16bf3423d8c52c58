package holder

import (
	"context"
	"errors"
	"fmt"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// Next issues a snowflake: see package number.
//
// Law: the generator keeps rules (1), (3) and (4) of docs/uniqueness.md. It refuses a tick at or above the end of its
// window, whatever the clock shows. So even a process that was paused in the middle of this call puts no tick of
// another owner's window into an ID.
func (h *Holder) Next(ctx context.Context) (subjects.ID, error) {
	if g := h.gen.Load(); g != nil {
		if runs, err := g.NextAt(now(), 1); err == nil {
			return runs.First(), nil
		}
	}
	runs, err := h.wait(ctx, 1)
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
		runs, err := h.wait(ctx, min(n, most))
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

// wait issues n IDs, and waits for the clock where a burst has run ahead of it.
func (h *Holder) wait(ctx context.Context, n int) (snowflake.Runs, error) {
	for at := now(); ; at = now() {
		g := h.gen.Load()
		if g == nil {
			return snowflake.Runs{}, h.explain(snowflake.ErrNoNumber)
		}
		runs, err := g.NextAt(at, n)
		behind, ok := errors.AsType[*snowflake.BehindError](err)
		switch {
		case err == nil:
			return runs, nil
		case ok && now() != at: // the reading may be from before this goroutine lost its CPU
			continue
		case !ok || behind.SetBack || behind.By > h.longest:
			return snowflake.Runs{}, h.explain(err)
		}
		if err := jitter.Sleep(ctx, behind.By); err != nil {
			return snowflake.Runs{}, err
		}
	}
}
