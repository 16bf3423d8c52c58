package cli

import (
	"math"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/wire"
)

func TestNumbersHaveTheirPlural(t *testing.T) {
	for _, c := range []struct {
		n           int
		thing, want string
	}{
		{0, "tag", "0 tags"}, {1, "tag", "1 tag"}, {2, "tag", "2 tags"},
		{1, "entry", "1 entry"}, {2, "entry", "2 entries"},
	} {
		if got := numberOf(c.n, c.thing); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestAnAbsentValueIsADash(t *testing.T) {
	for _, v := range []any{"", time.Time{}, (*int)(nil), fleetview.Seconds(wire.Fraction(math.Inf(1)))} {
		if got := cell(v); got != "-" {
			t.Errorf("%#v is %q, want a dash", v, got)
		}
	}
}
