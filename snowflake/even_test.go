package snowflake

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/natsid/natsid/internal/testkit/raced"
	"github.com/natsid/natsid/subjects"
)

// TestIDsAreEvenModuloAnyShardCount checks, for rates from 1 ID/s to 1M IDs/s and for batches, that id mod q is even.
//
// For powers of two up to 2^Sequence it can be exactly even, whatever the times of the requests. Beyond them id mod 2q
// contains a bit of business or worker number, which does not change: half of the residues never occur. Any other q
// below 2^Sequence is even except for q/2^Sequence, since some residues have one more sequence than others; for those
// here that is too little to show.
//
// IDs of one tick are consecutive, so they are no independent sample: the test takes a random one of each tick.
func TestIDsAreEvenModuloAnyShardCount(t *testing.T) {
	if raced.Or(1, 0) > 0 {
		t.Skip("it only computes: scripts/test plays it without the race detector")
	}
	tiny := Layout{Time: 50, Worker: 9, Sequence: 4, Epoch: epoch, Unit: 1} // shows unevenness at mid rates
	for _, c := range []struct {
		name   string
		layout Layout
		every  int64 // ms
		calls  int   // then
		n      int   // each
		sample int
	}{
		{"1 ID/s", Leaf, 1000, 1, 1, 40960},
		{"10 IDs/s", Leaf, 100, 1, 1, 40960},
		{"100 IDs/s", Leaf, 10, 1, 1, 40960},
		{"1k IDs/s", Leaf, 1, 1, 1, 40960},
		{"10k IDs/s", Leaf, 1, 10, 1, 40960},
		{"100k IDs/s", Leaf, 1, 100, 1, 20480},
		{"1M IDs/s", Leaf, 1, 1000, 1, 8192},
		{"1M IDs/s in batches of 10", Leaf, 1, 100, 10, 20480},
		{"1M IDs/s in batches of 1000", Leaf, 1, 1, 1000, 40960},
		{"1M IDs/s in batches of 3000", Leaf, 3, 1, 3000, 40960},
		{"1M IDs/s in batches of 100000", Leaf, 100, 1, 100_000, 40960},
		{"2/16 of the limit", tiny, 1, 2, 1, 1 << 18},
		{"3/16 of the limit", tiny, 1, 3, 1, 1 << 18},
		{"1/4 of the limit", tiny, 1, 4, 1, 1 << 18},
		{"1/4 of the limit in batches", tiny, 1, 1, 4, 1 << 18},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGenerator(t, c.layout, t0, 1<<60)
			rnd := rand.New(rand.NewPCG(1, 2))
			moduli := []subjects.ID{3, 7}
			if c.layout == Leaf {
				moduli = append(moduli, 10, 100)
			}
			for k := range c.layout.Sequence {
				moduli = append(moduli, 2<<k)
			}
			seen := make([][]int, len(moduli))
			for i, q := range moduli {
				seen[i] = make([]int, q)
			}
			for i := range c.sample {
				now, pick := t0+1000+int64(i)*c.every, rnd.IntN(c.calls*c.n)
				for range c.calls {
					runs, err := g.NextAt(now, c.n)
					if err != nil {
						t.Fatal(err)
					}
					if 0 <= pick && pick < c.n {
						id := nth(runs, pick)
						for i, q := range moduli {
							seen[i][id%q]++
						}
					}
					pick -= c.n
				}
			}
			for i, q := range moduli {
				if z := chiSquared(seen[i]); z > 4 {
					t.Errorf("id mod %d: %.1f standard deviations from even", q, z)
				}
			}
		})
	}
}

// The chi-squared test would accept starts that are one long run; this does not.
func TestEachStartIsRandom(t *testing.T) {
	g := newGenerator(t, Leaf, t0, 1<<60)
	var ones, zeros int64
	for now := int64(t0); now < t0+1000; now++ {
		s := take(t, g, now, 1)[0].Sequence
		ones, zeros = ones|s, zeros|^s
	}
	if ones != 4095 || zeros&4095 != 4095 {
		t.Errorf("in a thousand starts bits %012b were 1, bits %012b were 0, want each bit to be both",
			ones, zeros&4095)
	}
}

// nth returns the ID at index i of a batch.
func nth(r Runs, i int) subjects.ID {
	for first, last := range r.All() {
		if id := first + subjects.ID(i); id <= last {
			return id
		}
		i -= int(last - first + 1)
	}
	panic(fmt.Sprint("no such ID: ", i))
}

// chiSquared returns how far the counts are from even, in standard deviations (Wilson and Hilferty's approximation).
func chiSquared(counts []int) float64 {
	sum, x := 0, 0.0
	for _, n := range counts {
		sum += n
	}
	want := float64(sum) / float64(len(counts))
	for _, n := range counts {
		x += (float64(n) - want) * (float64(n) - want) / want
	}
	df := float64(len(counts) - 1)
	return (math.Cbrt(x/df) - 1 + 2/(9*df)) / math.Sqrt(2/(9*df))
}
