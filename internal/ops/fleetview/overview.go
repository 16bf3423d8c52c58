package fleetview

import (
	"cmp"
	"github.com/natsid/natsid/internal/wire"
	"slices"
	"time"
)

// A Row is a worker as tables show it.
type Row struct {
	Worker
	State    string // for people, such as serving or no number
	Class    string // Good or Bad
	Why      []string
	Window   time.Duration // time left in the window; 0 without a worker number
	Requests float64       // per second, over all modes
	IDs      float64
	Waiting  int
	Lag      wire.Fraction
	Runbook  wire.Alarm // entry of the runbook about the state; "" if the state is good
}

// An Overview is a [Snapshot] prepared for display: rows, and sums over workers.
type Overview struct {
	Snapshot
	Rows                 []Row
	Segments, Snowflakes float64 // IDs per second of the workers that answered
	Requests             float64 // per second, of the workers that answered
	Known                bool    // at least one worker has rates
	Waiting, Ready       int
	Versions             int // number of different versions
	Registries           []Registered
	Stages               []wire.StageView // nil if they were not asked for
	Errors               map[string]int64 // requests answered with an error since the workers started, by code
	Alarms               []RaisedAlarm    // open ones first, then the latest first
}

// A Registered counts the workers that report the same registry and era, the time between two resumes of the registry.
// The layout is that of the first of them.
type Registered struct {
	Registry string `json:"registry"`
	Era      string `json:"era"`
	Layout   string `json:"layout"`
	Pinned   bool   `json:"pinned"` // by a worker's setting
	Workers  int    `json:"workers"`
}

// Overview returns the workers in the order of the snapshot, and their sums.
func (s Snapshot) Overview() Overview {
	v := Overview{Snapshot: s, Errors: make(map[string]int64)}
	versions, registries := make(map[string]bool), make(map[[2]string]*Registered)
	for _, w := range s.Workers {
		row := rowOf(w, s.At)
		v.Rows = append(v.Rows, row)
		if !w.Answered {
			continue
		}
		versions[w.Version] = true
		if w.Registry != "" {
			at := [2]string{w.Registry, w.Era}
			if registries[at] == nil {
				registries[at] = &Registered{Registry: w.Registry, Era: w.Era, Layout: w.Layout}
			}
			registries[at].Pinned = registries[at].Pinned || w.Pinned
			registries[at].Workers++
		}
		v.Stages = append(v.Stages, w.Stages...)
		for _, a := range w.Alarms {
			v.raise(a, row, s.At)
		}
		for _, m := range w.Modes {
			for code, n := range m.Codes {
				v.Errors[code] += n
			}
		}
		v.Segments += w.Rates["segment"].IDs
		v.Snowflakes += w.Rates["snowflake"].IDs
		v.Requests += row.Requests
		v.Known = v.Known || row.Rates != nil
		v.Waiting += row.Waiting
		if row.Class == Good {
			v.Ready++
		}
	}
	v.Versions = len(versions)
	for _, r := range registries {
		v.Registries = append(v.Registries, *r)
	}
	slices.SortFunc(v.Registries, func(a, b Registered) int {
		return cmp.Or(cmp.Compare(b.Workers, a.Workers), cmp.Compare(a.Registry+a.Era, b.Registry+b.Era))
	})
	slices.SortStableFunc(v.Alarms, func(a, b RaisedAlarm) int {
		if a.Over != b.Over {
			return map[bool]int{true: 1, false: -1}[a.Over]
		}
		return b.Last.Compare(a.Last)
	})
	// Every worker reports all stages, so duplicates are dropped.
	slices.SortFunc(v.Stages, orderOfStages)
	v.Stages = slices.CompactFunc(v.Stages, func(a, b wire.StageView) bool { return orderOfStages(a, b) == 0 })
	return v
}

// Classes of states; a state is coloured by its class.
const (
	Good = "good"
	Bad  = "bad"
)

func rowOf(w Worker, now time.Time) Row {
	row := Row{Worker: w, State: "serving", Class: Good}
	for _, mode := range []string{"segment", "snowflake"} {
		m := w.Modes[mode]
		row.Requests += w.Rates[mode].Requests
		row.IDs += w.Rates[mode].IDs
		row.Waiting += m.Waiting
		row.Lag = max(row.Lag, m.LagSeconds)
		if m.State != wire.Ready && m.State != "" {
			row.Why = append(row.Why, mode+": "+m.State)
		}
	}
	if segment := w.Modes["segment"].State; len(row.Why) == 2 && segment == w.Modes["snowflake"].State {
		row.Why = []string{"segment, snowflake: " + segment}
	}
	if !w.Until.IsZero() {
		row.Window = max(0, w.Until.Sub(now))
	}
	switch {
	case !w.Answered && !w.Gone.IsZero():
		row.State, row.Runbook, row.Window = "gone", "down", 0
		row.Why = []string{"It did not stop cleanly, hangs, or is cut off. Its number is blocked until " +
			Clock(w.Gone, now) + " UTC, or until it starts again with the same data."}
	case !w.Answered:
		row.State, row.Runbook, row.Why = "no answer", "down", []string{silence(w, now)}
	case w.Statistics.Number == nil:
		row.State, row.Runbook = "no number", "not-ready"
	case len(row.Why) > 0:
		row.State, row.Runbook = "not ready", "not-ready"
	}
	if row.Runbook != "" {
		row.Class = Bad
	}
	return row
}

// silence says in words since when a worker does not answer.
func silence(w Worker, now time.Time) string {
	if w.Seen.IsZero() {
		return "It has a heartbeat and does not answer."
	}
	return "It last answered " + Span(now.Sub(w.Seen).Truncate(time.Second)) + " ago: the figures are those of then."
}
