package page

import (
	"net/http"

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
	var events []subjects.AlarmEvent
	events, _, v.AlarmTrouble = p.alarms.get(r.Context())
	v.Alarms, v.AlarmsToday = fleetview.Latest(events, s.At)
	return v, nil
}
