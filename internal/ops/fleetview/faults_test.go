package fleetview_test

import (
	"slices"
	"strings"
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

// The page shows the first fault on top, where an operator looks for the cause.
func TestWorkersWithOneCauseShareAFaultThatNamesIt(t *testing.T) {
	const away, number = "not ready: MySQL does not answer", "not ready: no number"
	var s fleetview.Snapshot
	for name, states := range map[string][2]string{"a": {away, away}, "b": {away, away}, "c": {away, number}} {
		w := fleetview.Worker{Answered: true}
		w.Statistics.Instance, w.Statistics.Number = name, new(7)
		w.Modes = map[string]wire.ModeView{"segment": {State: states[0]}, "snowflake": {State: states[1]}}
		s.Workers = append(s.Workers, w)
	}
	slices.SortFunc(s.Workers, func(x, y fleetview.Worker) int { return strings.Compare(x.Name(), y.Name()) })
	want := []fleetview.Fault{
		{What: "a, b: not ready", Why: "segment, snowflake: MySQL does not answer"},
		{What: "c: not ready", Why: "segment: MySQL does not answer; snowflake: no number"},
	}
	if got := s.Overview().Faults(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
