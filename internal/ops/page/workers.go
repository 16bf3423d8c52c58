package page

import (
	"net/http"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/subjects"
)

// workersView is the data of the first view.
type workersView struct {
	fleetview.Overview
	Alarms       []subjects.AlarmEvent
	AlarmsToday  int
	AlarmTrouble error
	Stages       []subjects.StageView
}

func (p *page) workers(r *http.Request) (any, error) {
	s, err := p.cfg.Fleet.Look(r.Context(), subjects.ViewRequest{})
	if err != nil {
		return nil, err
	}
	v := workersView{Overview: s.Overview(), Stages: p.cfg.Stages()}
	v.Alarms, _, v.AlarmTrouble = p.alarms.get(r.Context()) // the latest first
	for _, e := range v.Alarms {
		if s.At.Sub(e.Time) < 24*time.Hour {
			v.AlarmsToday++
		}
	}
	v.Alarms = v.Alarms[:min(v.AlarmsToday, shownAlarms)]
	return v, nil
}

// shownAlarms is how many of the latest alarms are shown beside the workers.
const shownAlarms = 3
