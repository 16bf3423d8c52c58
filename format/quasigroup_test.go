package format_test

import (
	"testing"

	"github.com/natsid/natsid/format"
)

// TestQuasigroupsAreTotallyAntiSymmetric shows what Damm's check digit needs, from which all lengths follow: each row
// and column has each value once, so that a wrong digit changes all that follows; (c*x)*y = (c*y)*x only if x = y, so
// that a swap does; and x*x = 0, so that a digit which fits ends with 0.
func TestQuasigroupsAreTotallyAntiSymmetric(t *testing.T) {
	for name, op := range map[string]struct {
		times func(a, b int64) int64
		order int64
	}{"decimal": {format.Damm, 10}, "crockford": {format.Damm32, 32}} {
		for c := range op.order {
			row, column := map[int64]bool{}, map[int64]bool{}
			for x := range op.order {
				row[op.times(c, x)], column[op.times(x, c)] = true, true
				for y := range x {
					if op.times(op.times(c, x), y) == op.times(op.times(c, y), x) {
						t.Errorf("%s: (%d*%d)*%d = (%d*%d)*%d", name, c, x, y, c, y, x)
					}
				}
				if got := op.times(c, x); got < 0 || got >= op.order {
					t.Errorf("%s: %d*%d = %d", name, c, x, got)
				}
			}
			if len(row) != int(op.order) || len(column) != int(op.order) {
				t.Errorf("%s: row %d has %d values, the column %d", name, c, len(row), len(column))
			}
			if op.times(c, c) != 0 {
				t.Errorf("%s: %d*%d = %d", name, c, c, op.times(c, c))
			}
		}
	}
}
