package client_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/natsid/natsid/client"
)

func TestRunsHoldEachOfTheirIDsOnce(t *testing.T) {
	for _, tc := range []struct {
		runs client.Runs
		want []client.ID
	}{
		{nil, nil},
		{client.Runs{{First: 7, Last: 7}}, []client.ID{7}},
		{client.Runs{{First: 1, Last: 3}, {First: 9, Last: 9}, {First: 5, Last: 6}}, []client.ID{1, 2, 3, 9, 5, 6}},
		{client.Runs{{First: math.MaxInt64 - 1, Last: math.MaxInt64}, {First: 4, Last: 4}},
			[]client.ID{math.MaxInt64 - 1, math.MaxInt64, 4}},
	} {
		got := slices.Collect(tc.runs.All())
		if !slices.Equal(got, tc.want) || tc.runs.Len() != len(tc.want) {
			t.Errorf("%v: %v, Len %d, want %v", tc.runs, got, tc.runs.Len(), tc.want)
		}
		for i := range tc.want { // a loop that is left
			var seen []client.ID
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
