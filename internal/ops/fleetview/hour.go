package fleetview

import (
	"context"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/wire"
)

// A Point has the figures of one mode for one step of [wire.HourStep].
type Point struct {
	Requests, Refused, IDs int64
	Median, Slow, Lag      time.Duration
}

// An Hour keeps the last hour of this worker. It is safe for concurrent use.
type Hour struct {
	mu     sync.Mutex
	end    int64 // Unix s; 0 before the first point
	series map[string]wire.HourSeries
}

// Run adds the points of each step, which take returns by mode, until ctx ends. Steps end when the clock shows a
// multiple of [wire.HourStep], so points of several workers can be added.
func (h *Hour) Run(ctx context.Context, now func() time.Time, take func() map[string]Point) {
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

// Add adds the points of the step that ended at end, in Unix seconds. Steps that were left out, since the process
// paused or the clock was set ahead, get empty points. If the clock was set back, the points follow the last step.
func (h *Hour) Add(end int64, points map[string]Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	const step = int64(wire.HourStep / time.Second)
	gap := int64(0)
	if h.end != 0 {
		gap = min(max((end-h.end)/step-1, 0), wire.HourPoints)
		end = max(end, h.end+step)
	}
	if h.series == nil {
		h.series = make(map[string]wire.HourSeries)
	}
	for mode, p := range points {
		s := h.series[mode]
		for range gap {
			s = appended(s, Point{})
		}
		h.series[mode] = appended(s, p)
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
	v := &wire.HourView{End: h.end, Modes: make(map[string]wire.HourSeries)}
	for mode, s := range h.series {
		v.Modes[mode] = s
	}
	return v
}

// appended returns the series with one more point, and without points older than an hour. It does not change s.
func appended(s wire.HourSeries, p Point) wire.HourSeries {
	add := func(to []int64, v int64) []int64 {
		if len(to) >= wire.HourPoints {
			to = to[len(to)-wire.HourPoints+1:]
		}
		return append(to, v)
	}
	return wire.HourSeries{
		Requests: add(s.Requests, p.Requests), Refused: add(s.Refused, p.Refused), IDs: add(s.IDs, p.IDs),
		MedianUs: add(s.MedianUs, p.Median.Microseconds()), SlowUs: add(s.SlowUs, p.Slow.Microseconds()),
		LagMs: add(s.LagMs, p.Lag.Milliseconds()),
	}
}
