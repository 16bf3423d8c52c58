package cli

import (
	"testing"
	"time"

	"github.com/natsid/natsid/internal/stage"
)

func TestAStageSaysHowLongItTakesUntilNothingIsBehind(t *testing.T) {
	for _, tc := range []struct {
		before, now uint64 // messages behind, 2 s apart
		want        time.Duration
	}{
		{5000, 4000, 8 * time.Second}, {4000, 4000, 0}, // as many came
		{4000, 6000, 0}, {6000, 0, 0},
	} {
		if got := left(stage.Progress{Behind: tc.before}, stage.Progress{Behind: tc.now}, 2); got != tc.want {
			t.Errorf("from %d to %d behind: %v left, want %v", tc.before, tc.now, got, tc.want)
		}
	}
}
