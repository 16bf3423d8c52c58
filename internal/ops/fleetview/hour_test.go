package fleetview_test

import (
	"slices"
	"testing"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/wire"
)

func TestAnHourHasTheLastPointsAndHolesWhereTimeWasLost(t *testing.T) {
	var h fleetview.Hour
	requests := func(v *wire.HourView) (all []int64) {
		for _, p := range v.Modes["segment"] {
			all = append(all, p.Requests)
		}
		return all
	}
	if h.View() != nil {
		t.Error("points before the first")
	}
	add := func(end, requests int64) {
		h.Add(end, map[string]wire.HourPoint{"segment": {Requests: requests}})
	}
	for _, tc := range []struct {
		law            string
		end, requests  int64
		wantEnd        int64
		wantLastPoints []int64
	}{
		{"the first", 1000, 1, 1000, []int64{1}},
		{"the next", 1010, 2, 1010, []int64{1, 2}},
		{"steps in which the process stood still are empty", 1040, 3, 1040, []int64{1, 2, 0, 0, 3}},
		{"after a clock set back, steps follow the last one", 500, 4, 1050, []int64{1, 2, 0, 0, 3, 4}},
	} {
		add(tc.end, tc.requests)
		v := h.View()
		if got := requests(v); v.End != tc.wantEnd || !slices.Equal(got, tc.wantLastPoints) {
			t.Errorf("%s: %d %v, want %d %v", tc.law, v.End, got, tc.wantEnd, tc.wantLastPoints)
		}
	}
	before := h.View()
	for i := range int64(2 * wire.HourPoints) {
		add(1060+10*i, i)
	}
	got := requests(h.View())
	if n := len(got); n != wire.HourPoints || got[n-1] != 2*wire.HourPoints-1 {
		t.Errorf("%d points, the last is %d", n, got[n-1])
	}
	if !slices.Equal(requests(before), []int64{1, 2, 0, 0, 3, 4}) {
		t.Errorf("a view changed after it was taken: %v", requests(before))
	}
	add(1_000_000, 7)
	if got := requests(h.View()); len(got) != wire.HourPoints || got[0] != 0 {
		t.Errorf("after a day's pause: %v", got)
	}
}
