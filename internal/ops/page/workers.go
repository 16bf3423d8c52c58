package page

import (
	"net/http"
	"slices"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/subjects"
)

// workersView is the data of the first view.
type workersView struct {
	fleetview.Overview
	Alarms []openAlarm // the latest first
	Stages []subjects.StageView
}

// openAlarm is an alarm of a worker.
type openAlarm struct {
	subjects.OpenAlarm
	Worker string
}

func (p *page) workers(r *http.Request) (any, error) {
	s, err := p.cfg.Fleet.Look(r.Context(), subjects.ViewRequest{})
	if err != nil {
		return nil, err
	}
	v := workersView{Overview: s.Overview(), Stages: p.cfg.Stages()}
	for _, w := range v.Rows {
		if !w.Answered {
			continue
		}
		for _, a := range w.Alarms {
			v.Alarms = append(v.Alarms, openAlarm{a, w.Name()})
		}
	}
	slices.SortStableFunc(v.Alarms, func(x, y openAlarm) int { return y.Last.Compare(x.Last) })
	return v, nil
}
