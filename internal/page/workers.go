package page

import (
	"net/http"
	"time"

	"github.com/natsid/natsid/internal/fleetview"
	"github.com/natsid/natsid/subjects"
)

// A workerRow is a worker in the first view.
type workerRow struct {
	fleetview.Worker
	State    string // in a word or two
	Class    string // good, away or bad
	Why      []string
	Window   time.Duration // left; 0 without a number
	Requests float64       // a second, of all modes
	IDs      float64
	Known    bool // the rates are
	Waiting  int
	Lag      subjects.Fraction
}

// workersView is what the first view shows.
type workersView struct {
	Rows                 []workerRow
	Segments, Snowflakes float64 // IDs a second
	Requests             float64
	Waiting, Ready       int
	Versions             int   // how many different ones
	Numbers              int   // that are held
	Registry             error // why the worker numbers are not as of now
	Alarms               []subjects.AlarmEvent
	AlarmsToday          int
	AlarmTrouble         error
}

func (p *page) workers(r *http.Request) (any, error) {
	s, err := p.cfg.Fleet.Look(r.Context(), subjects.ViewRequest{})
	if err != nil {
		return nil, err
	}
	v := workersView{Registry: s.Numbers.Trouble, Numbers: len(s.Numbers.Heartbeats)}
	versions := make(map[string]bool)
	for _, w := range s.Workers {
		row := rowOf(w, s.At)
		v.Rows = append(v.Rows, row)
		if !w.Answered {
			continue
		}
		versions[w.Version] = true
		v.Segments += w.Rates["segment"].IDs
		v.Snowflakes += w.Rates["snowflake"].IDs
		v.Requests += row.Requests
		v.Waiting += row.Waiting
		if row.Class == good {
			v.Ready++
		}
	}
	v.Versions = len(versions)
	var events []subjects.AlarmEvent
	events, _, v.AlarmTrouble = p.alarms.get(r.Context())
	for i, e := range events {
		if s.At.Sub(e.Time) < 24*time.Hour {
			v.AlarmsToday++
			v.Alarms = events[:min(i+1, 3)]
		}
	}
	return v, nil
}

// Classes of states, by which they are coloured.
const (
	good = "good"
	away = "away"
	bad  = "bad"
)

func rowOf(w fleetview.Worker, now time.Time) workerRow {
	row := workerRow{Worker: w, State: "serving", Class: good, Known: w.Rates != nil}
	for _, mode := range []string{"segment", "snowflake"} {
		m := w.Modes[mode]
		row.Requests += w.Rates[mode].Requests
		row.IDs += w.Rates[mode].IDs
		row.Waiting += m.Waiting
		row.Lag = max(row.Lag, m.LagSeconds)
		if m.State != subjects.Ready && m.State != "" {
			row.Why = append(row.Why, mode+": "+m.State)
		}
	}
	if !w.Until.IsZero() {
		row.Window = max(0, w.Until.Sub(now))
	}
	switch {
	case !w.Answered:
		row.State, row.Class, row.Why = "no answer", bad, []string{silence(w, now)}
	case w.Drained:
		row.State, row.Class = "drained", away
	case w.Statistics.Number == nil:
		row.State, row.Class = "no number", bad
	case len(row.Why) > 0:
		row.State, row.Class = "not ready", bad
	}
	return row
}

// silence says what is known of a worker that does not answer.
func silence(w fleetview.Worker, now time.Time) string {
	if w.Seen.IsZero() {
		return "It has a heartbeat and never answered the page: it is of an older version, or hangs."
	}
	return "It last answered " + span(now.Sub(w.Seen).Truncate(time.Second)) +
		" ago, and did not stop cleanly: the figures are those of then."
}
