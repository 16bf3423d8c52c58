package segment

import (
	"sync"
	"testing"
	"time"
)

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

func TestNoSampleIsLostToAnotherOne(t *testing.T) {
	var s Slowest
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for n := range 1000 {
				s.Note(time.Duration(n))
			}
		})
	}
	wg.Wait()
	if got := s.Get(); got != 999 {
		t.Errorf("%d, want 999: the last sample of each", got)
	}
}
