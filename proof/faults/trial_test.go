//go:build linux

package main

import (
	"slices"
	"testing"
)

func TestATrialIsTriedAgainOnlyForWhatAStalledMachineExplains(t *testing.T) {
	t.Parallel()
	late := []string{"late"}
	fine, broke := result{}, result{violations: late}
	stalled := result{violations: late, stalled: stallMax}
	repeat := result{violations: late, stalled: stallMax, wrong: true}
	for name, c := range map[string]struct {
		tries          []result
		again          bool
		want           int // tries
		broke, skipped bool
	}{
		"it is fine":                                {[]result{fine}, true, 1, false, false},
		"an ID repeats":                             {[]result{repeat}, true, 1, true, false},
		"an ID repeats the second time":             {[]result{broke, repeat}, true, 2, true, false},
		"a promise of time is broken":               {[]result{broke}, false, 1, true, false},
		"a promise of time is broken once":          {[]result{broke, fine}, true, 2, false, false},
		"a promise of time is broken twice":         {[]result{broke, broke}, true, 2, true, false},
		"the machine stalled once":                  {[]result{stalled, fine}, false, 2, false, false},
		"the machine stalled, and time is broken":   {[]result{stalled, broke}, true, 2, true, false},
		"the machine stalled each time":             {[]result{stalled, stalled, stalled}, true, 3, false, true},
		"time is broken, and then only stalls come": {[]result{broke, stalled, stalled}, true, 3, true, false},
	} {
		left := slices.Clone(c.tries)
		got := try(t.Context(), options{again: c.again}, t.TempDir(), func(string) result {
			r := left[0]
			left = left[1:]
			return r
		})
		isBroken, isSkipped := len(got.violations) > 0, got.skipped != ""
		if len(left) != 0 || got.tries != c.want || isBroken != c.broke || isSkipped != c.skipped {
			t.Errorf("%s: %d tries, broken %q, skipped %q", name, got.tries, got.violations, got.skipped)
		}
	}
}

func TestNoStallExplainsARepeatOrABrokenOrder(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]result{
		"a repeat": {repeats: 1}, "a broken order": {order: verdict{faults: []string{"2 came after 3"}}},
	} {
		s := newTrial(t, unbounded)
		if s.judge(r); !s.broken {
			t.Errorf("%s: %q", name, s.violations)
		}
	}
}
