package page

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/wire"
)

// A chart shows one figure over the last hour, for all workers together.
type chart struct {
	Title, Note string
	Lines       []line
	Top         string // highest value on the axis
	Summary     string // the figures in words
}

// A line is the figure of one mode. Points are in a drawing of chartWidth by chartHeight.
type line struct {
	Mode, Points string
	Now, Most    string
}

// Sizes of a drawing.
const (
	chartWidth  = 360
	chartHeight = 100
)

// chartsView is the data of the view "Last hour".
type chartsView struct {
	Charts   []chart
	From, To time.Time
	Without  []string // workers that have sent no figures of the last hour
}

// figures are the figures of the charts: at each point, the sum over all workers or the highest value.
var figures = []struct {
	title, note string
	of          func(wire.HourPoint) int64
	worst       bool
	scale       float64 // factor from the stored unit
	word        func(float64) string
}{
	{"IDs a second", "of all workers", func(p wire.HourPoint) int64 { return p.IDs }, false, perSecond,
		fleetview.PerSecond},
	{"Requests a second", "of all workers", func(p wire.HourPoint) int64 { return p.Requests }, false, perSecond,
		fleetview.PerSecond},
	{"Refused requests a second", "answered with an error, of all workers",
		func(p wire.HourPoint) int64 { return p.Refused }, false, perSecond, fleetview.PerSecond},
	{"Time of half of the answers", "at most, of the slowest worker",
		func(p wire.HourPoint) int64 { return p.MedianUs }, true, 1e-6, inSeconds},
	{"Time of 99 in 100 answers", "at most, of the slowest worker",
		func(p wire.HourPoint) int64 { return p.SlowUs }, true, 1e-6, inSeconds},
	{"Lag", "how long requests wait for their turn, of the latest worker",
		func(p wire.HourPoint) int64 { return p.LagMs }, true, 1e-3, inSeconds},
}

const perSecond = 1 / float64(wire.HourStep/time.Second)

func inSeconds(v float64) string { return fleetview.Span(time.Duration(v * float64(time.Second))) }

func (p *page) charts(r *http.Request, _ fleetview.Snapshot) (any, error) {
	s, err := p.cfg.Fleet.Look(r.Context(), wire.ViewRequest{Hour: true})
	if err != nil {
		return nil, err
	}
	v := chartsView{}
	var ends []int64
	var hours []*wire.HourView
	for _, w := range s.Workers {
		if !w.Answered || w.Hour == nil {
			v.Without = append(v.Without, w.Name())
			continue
		}
		hours = append(hours, w.Hour)
		ends = append(ends, w.Hour.End)
	}
	if len(ends) == 0 {
		return v, nil
	}
	slices.Sort(ends)
	end := ends[len(ends)/2]
	v.To = time.Unix(end, 0).UTC()
	v.From = v.To.Add(-time.Hour)
	for _, f := range figures {
		c := chart{Title: f.title, Note: f.note}
		values, top := make(map[string][]float64), 0.0
		for _, mode := range modes {
			values[mode] = gather(hours, end, mode, f.of, f.worst)
			top = max(top, highest(values[mode]))
		}
		axis := ceiling(top * f.scale)
		c.Top = f.word(axis)
		for _, mode := range modes {
			l := drawn(values[mode], f.scale/axis)
			now := values[mode][len(values[mode])-1]
			l.Mode, l.Now, l.Most = mode, f.word(now*f.scale), f.word(highest(values[mode])*f.scale)
			c.Lines = append(c.Lines, l)
			c.Summary += fmt.Sprintf("; %s: now %s, at most %s", mode, l.Now, l.Most)
		}
		c.Summary = f.title + " in the last hour" + c.Summary
		v.Charts = append(v.Charts, c)
	}
	return v, nil
}

// maxLate is the most points by which the hours of two workers with correct clocks can differ.
const maxLate = 6

var modes = []string{"segment", "snowflake"}

// gather returns the points of the hour that ended at end, each the sum over all workers, or with worst the highest;
// NaN where no worker has a point.
func gather(
	hours []*wire.HourView, end int64, mode string, of func(wire.HourPoint) int64, worst bool,
) []float64 {
	all := slices.Repeat([]float64{math.NaN()}, wire.HourPoints)
	for _, h := range hours {
		points := h.Modes[mode]
		late := int((end - h.End) / int64(wire.HourStep/time.Second))
		if max(late, -late) > maxLate {
			late = 0 // the worker's clock is wrong: take its last point as that of now
		}
		for i, p := range points {
			v, at := float64(of(p)), wire.HourPoints-len(points)-late+i
			switch {
			case at < 0 || at >= len(all):
			case math.IsNaN(all[at]):
				all[at] = v
			case worst:
				all[at] = max(all[at], v)
			default:
				all[at] += v
			}
		}
	}
	return all
}

// highest returns the highest of the points; 0 if there are none.
func highest(points []float64) (most float64) {
	for _, v := range points {
		if v > most { // false for NaN
			most = v
		}
	}
	return most
}

// drawn returns the line of values; scale, their factor, makes the highest value at most 1.
func drawn(values []float64, scale float64) line {
	var points strings.Builder
	for i, v := range values {
		if math.IsNaN(v) {
			continue
		}
		x := float64(i) * chartWidth / float64(len(values)-1)
		fmt.Fprintf(&points, "%.1f,%.1f ", x, chartHeight*(1-v*scale))
	}
	return line{Points: strings.TrimSpace(points.String())}
}

// ceiling returns the lowest number of at least v that is 1, 2 or 5 times a power of ten; 1 for 0.
func ceiling(v float64) float64 {
	if v <= 0 {
		return 1
	}
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 5} {
		if v <= step*base {
			return step * base
		}
	}
	return 10 * base
}
