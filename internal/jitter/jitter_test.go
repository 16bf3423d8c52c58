package jitter

import (
	"testing"
	"time"
)

func TestPausesGrowToTheLongestAndStartOver(t *testing.T) {
	defer func(s func() float64) { Source = s }(Source)
	Source = func() float64 { return 0.5 }
	b := NewBackoff(10*time.Millisecond, 20*time.Millisecond)
	for _, want := range []time.Duration{10, 15, 20, 20} {
		if got := b.NextBackOff(); got != want*time.Millisecond {
			t.Errorf("%v, want %v ms", got, int64(want))
		}
	}
	b.Reset()
	if got := b.NextBackOff(); got != 10*time.Millisecond {
		t.Errorf("after Reset %v", got)
	}
}

func TestAPauseIsHalfToOneAndAHalf(t *testing.T) {
	for range 1000 {
		if d := NewBackoff(time.Second, time.Second).NextBackOff(); d < time.Second/2 || d >= 3*time.Second/2 {
			t.Fatal(d)
		}
	}
}
