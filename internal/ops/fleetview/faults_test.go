package fleetview_test

import (
	"testing"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/wire"
)

// Grants are written again, or the alarm is raised each minute, a retry late at most.
func TestAnAlarmIsOverSoonAfterItIsRaisedNoMore(t *testing.T) {
	now := time.Now()
	for kind, want := range map[wire.Alarm]int{wire.AlarmGrantsLost: 0, wire.AlarmTagFillsUp: 1} {
		w := fleetview.Worker{Answered: true, Seen: now}
		w.Statistics.Number, w.Modes = new(7), map[string]wire.ModeView{"segment": {State: wire.Ready}}
		for age, open := range map[time.Duration]int{66 * time.Second: 1, 2 * time.Minute: want} {
			w.Alarms = []wire.OpenAlarm{{Kind: kind, Since: now.Add(-time.Hour), Last: now.Add(-age)}}
			s := fleetview.Snapshot{At: now, Workers: []fleetview.Worker{w}}
			if got := s.Overview().Open(); got != open {
				t.Errorf("%s, raised %v ago: %d open, want %d", kind, age, got, open)
			}
		}
	}
}
