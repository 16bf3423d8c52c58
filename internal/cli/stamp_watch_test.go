package cli

import (
	"testing"
	"time"

	"github.com/natsid/natsid/internal/stage"
)

func TestThePaceTellsWhenNothingIsBehind(t *testing.T) {
	at := time.Now()
	p := pace{at: at, last: stage.Progress{Role: stage.Copying, Copied: 100, Position: 100, Behind: 5000}}
	for _, tc := range []struct {
		copied, behind uint64
		left           time.Duration
		perSecond      float64
	}{
		{1100, 4000, 8 * time.Second, 500}, {2100, 4000, 0, 500}, // as many came
		{2100, 6000, 0, 0}, {8100, 0, 0, 3000},
	} {
		at = at.Add(2 * time.Second)
		p.next(at, stage.Progress{Role: stage.Copying, Copied: tc.copied, Position: tc.copied, Behind: tc.behind})
		if p.perSecond != tc.perSecond || p.left() != tc.left {
			t.Errorf("%v/s, %v left, want %v/s, %v", p.perSecond, p.left(), tc.perSecond, tc.left)
		}
	}
}
