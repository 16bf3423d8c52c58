package subjects_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/natsid/natsid/subjects"
)

func TestRunsHoldEachOfTheirIDsOnce(t *testing.T) {
	for _, tc := range []struct {
		runs subjects.Runs
		want []subjects.ID
	}{
		{nil, nil},
		{subjects.Runs{{First: 7, Last: 7}}, []subjects.ID{7}},
		{subjects.Runs{{First: 1, Last: 3}, {First: 9, Last: 9}, {First: 5, Last: 6}}, []subjects.ID{1, 2, 3, 9, 5, 6}},
		{subjects.Runs{{First: math.MaxInt64 - 1, Last: math.MaxInt64}, {First: 4, Last: 4}},
			[]subjects.ID{math.MaxInt64 - 1, math.MaxInt64, 4}},
	} {
		got := slices.Collect(tc.runs.All())
		if !slices.Equal(got, tc.want) || tc.runs.Len() != len(tc.want) {
			t.Errorf("%v: %v, Len %d, want %v", tc.runs, got, tc.runs.Len(), tc.want)
		}
		for i := range tc.want { // a loop that is left
			var seen []subjects.ID
			for id := range tc.runs.All() {
				if seen = append(seen, id); len(seen) > i {
					break
				}
			}
			if fmt.Sprint(seen) != fmt.Sprint(tc.want[:i+1]) {
				t.Errorf("%v, left after %d: %v", tc.runs, i+1, seen)
			}
		}
	}
}
