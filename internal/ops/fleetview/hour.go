package fleetview

import (
	"context"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/wire"
)

// A Point is the work of one mode in one step of [wire.HourStep].
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

// Run takes the points of each step, by mode, from take until ctx ends. Steps end when the clock shows a multiple of
// [wire.HourStep], so those of several workers can be added.
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

// Add adds the points of the step that ended at a time, Unix s. Steps in between, in which the process stood still or
// the clock was set, are empty. After a clock that was set back, steps follow the last one.
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

// View returns the hour, nil before the first point.
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

// appended returns the series with one more point, without points that are more than an hour old. Series returned
// before do not change.
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
