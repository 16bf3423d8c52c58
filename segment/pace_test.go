package segment

import (
	"math"
	"testing"
	"time"
)

func TestTheStepFollowsHowLongTheLastRangeLasted(t *testing.T) {
	const most = 1_000_000
	for _, tc := range []struct {
		law              string
		step, configured int64
		lasted           time.Duration
		want             int64
	}{
		{"used up at once", 1000, 1000, 0, 2000},
		{"just under 15 min", 1000, 1000, 15*time.Minute - 1, 2000},
		{"15 min", 1000, 1000, 15 * time.Minute, 1000},
		{"30 min", 4000, 1000, 30 * time.Minute, 4000},
		{"just over 30 min", 4000, 1000, 30*time.Minute + 1, 2000},
		{"for ever", 4000, 1000, math.MaxInt64, 2000},
		{"never below the tag's own", 1000, 1000, time.Hour, 1000},
		{"nor a little below", 1500, 1000, time.Hour, 1000},
		{"never above the maximum", 600_000, 1000, 0, most},
		{"at the maximum", most, 1000, 0, most},
		{"a tag's own above the maximum counts", 5_000_000, 5_000_000, 0, 5_000_000},
		{"also when it halves", 5_000_000, 5_000_000, time.Hour, 5_000_000},
		{"the tag's own was raised", 1000, 7000, 20 * time.Minute, 7000},
		{"the tag's own was lowered", 7000, 10, 20 * time.Minute, 7000},
		{"the maximum was lowered", 3_000_000, 1000, 20 * time.Minute, most},
		{"the clock cannot go back, but if it did", 1000, 1000, -time.Hour, 2000},
	} {
		rule := stepRule{max: most, time: 15 * time.Minute}
		if got := rule.next(tc.step, tc.configured, tc.lasted); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.law, got, tc.want)
		}
	}
}

func TestAStepDoesNotOverflowAsLeafsDoes(t *testing.T) {
	rule := stepRule{max: math.MaxInt64, time: 15 * time.Minute}
	for step, want := range map[int64]int64{
		1 << 30: 1 << 31, 1<<31 - 1: 1<<32 - 2, 1 << 62: math.MaxInt64, math.MaxInt64: math.MaxInt64,
	} {
		if got := rule.next(step, 1, 0); got != want {
			t.Errorf("%d doubled is %d, want %d", step, got, want)
		}
	}
	long := stepRule{max: 100, time: math.MaxInt64}
	if got := long.next(50, 1, math.MaxInt64); got != 50 {
		t.Errorf("a range that lasted as long as it should: %d, want 50", got)
	}
}

func TestTheSlowestDecaysByAnEighthToTheLastSample(t *testing.T) {
	var s Slowest
	for _, tc := range []struct{ took, want time.Duration }{
		{0, 0}, {80, 80}, {8, 70}, {70, 70}, {69, 69}, {100, 100}, {90, 90}, {0, 79},
	} {
		if s.Note(tc.took); s.Get() != tc.want {
			t.Errorf("after a sample of %d: %d, want %d", tc.took, s.Get(), tc.want)
		}
	}
}
