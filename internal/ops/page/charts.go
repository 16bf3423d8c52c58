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

// A line of a chart shows the figure of one mode. Points are its corners, in a drawing of chartWidth by chartHeight.
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

// figures are the figures of the charts. A count is the sum over all workers; a time is that of the worst worker.
var figures = []struct {
	title, note string
	of          func(wire.HourPoint) int64
	unit        time.Duration // of a time; 0 for a count
}{
	{"IDs a second", "of all workers", func(p wire.HourPoint) int64 { return p.IDs }, 0},
	{"Requests a second", "of all workers", func(p wire.HourPoint) int64 { return p.Requests }, 0},
	{"Refused requests a second", "answered with an error, of all workers",
		func(p wire.HourPoint) int64 { return p.Refused }, 0},
	{"Time of half of the answers", "at most, of the slowest worker",
		func(p wire.HourPoint) int64 { return p.MedianUs }, time.Microsecond},
	{"Time of 99 in 100 answers", "at most, of the slowest worker",
		func(p wire.HourPoint) int64 { return p.SlowUs }, time.Microsecond},
	{"Lag", "how long requests wait for their turn, of the latest worker",
		func(p wire.HourPoint) int64 { return p.LagMs }, time.Millisecond},
}

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
		c, scale, word := chart{Title: f.title, Note: f.note}, 1/wire.HourStep.Seconds(), fleetview.PerSecond
		if f.unit > 0 {
			scale, word = f.unit.Seconds(), func(v float64) string { return fleetview.Seconds(wire.Fraction(v)) }
		}
		values, top := make(map[string][]float64), 0.0
		for _, mode := range modes {
			values[mode] = gather(hours, end, mode, f.of, f.unit > 0)
			top = max(top, highest(values[mode]))
		}
		axis := ceiling(top * scale)
		c.Top = word(axis)
		for _, mode := range modes {
			l := drawn(values[mode], scale/axis)
			now := values[mode][len(values[mode])-1]
			l.Mode, l.Now, l.Most = mode, word(now*scale), word(highest(values[mode])*scale)
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

// gather returns the points of the hour that ended at end, each the sum over all workers or, if worst is true, the
// highest of theirs; NaN where no worker has a point.
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
