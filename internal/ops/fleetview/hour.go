package fleetview

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/wire"
)

// An Hour keeps the last hour of this worker. It is safe for concurrent use.
type Hour struct {
	mu    sync.Mutex
	end   int64 // Unix s; 0 before the first point
	modes map[string][]wire.HourPoint
}

// Run adds the points of each step until ctx ends; take returns them by mode. Steps end when the clock shows a multiple
// of [wire.HourStep], so points of several workers can be summed.
func (h *Hour) Run(ctx context.Context, now func() time.Time, take func() map[string]wire.HourPoint) {
	take() // discard counts from before the first step
	for {
		at := now()
		next := at.Truncate(wire.HourStep).Add(wire.HourStep)
		select {
		case <-time.After(next.Sub(at)):
			h.Add(next.Unix(), take())
		case <-ctx.Done():
			return
		}
	}
}

// Add adds the points of the step that ended at end, in Unix seconds. Missing steps, as after a pause of the process or
// when the clock was set ahead, get empty points. If the clock was set back, the points follow the last step.
func (h *Hour) Add(end int64, points map[string]wire.HourPoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	const step = int64(wire.HourStep / time.Second)
	gap := int64(0)
	if h.end != 0 {
		gap = min(max((end-h.end)/step-1, 0), wire.HourPoints)
		end = max(end, h.end+step)
	}
	if h.modes == nil {
		h.modes = make(map[string][]wire.HourPoint)
	}
	for mode, p := range points {
		all := append(append(h.modes[mode], make([]wire.HourPoint, gap)...), p) // past the end of the slice of any view
		h.modes[mode] = all[max(0, len(all)-wire.HourPoints):]
	}
	h.end = end
}

// View returns the last hour; nil before the first point.
func (h *Hour) View() *wire.HourView {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end == 0 {
		return nil
	}
	return &wire.HourView{End: h.end, Modes: maps.Clone(h.modes)}
}
