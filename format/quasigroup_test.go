package format_test

import (
	"testing"

	"github.com/natsid/natsid/format"
)

// TestQuasigroupsAreTotallyAntiSymmetric shows what Damm's check digit needs, from which all lengths follow: each row
// and column has each value once, so that a wrong digit changes all that follows; (c*x)*y = (c*y)*x only if x = y, so
// that a swap does; and x*x = 0, so that a digit which fits ends with 0.
func TestQuasigroupsAreTotallyAntiSymmetric(t *testing.T) {
	for set, times := range format.Sums {
		name, order := set, int64(len(set))
		for c := range order {
			row, column := map[int64]bool{}, map[int64]bool{}
			for x := range order {
				row[times(c, x)], column[times(x, c)] = true, true
				for y := range x {
					if times(times(c, x), y) == times(times(c, y), x) {
						t.Errorf("%s: (%d*%d)*%d = (%d*%d)*%d", name, c, x, y, c, y, x)
					}
				}
				if got := times(c, x); got < 0 || got >= order {
					t.Errorf("%s: %d*%d = %d", name, c, x, got)
				}
			}
			if len(row) != len(set) || len(column) != len(set) {
				t.Errorf("%s: row %d has %d values, the column %d", name, c, len(row), len(column))
			}
			if times(c, c) != 0 {
				t.Errorf("%s: %d*%d = %d", name, c, c, times(c, c))
			}
		}
	}
}
