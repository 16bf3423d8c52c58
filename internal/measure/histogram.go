package measure

import (
	"math"
	"math/bits"
	"time"
)

// Durations are counted in buckets, 32 for each power of two of nanoseconds: so no error exceeds 1.6 %, and the
// number of calls is not limited.
const (
	fine    = 5 // bits
	buckets = (64 - fine) << fine
)

// bucketOf returns the bucket of a duration, which is not negative.
func bucketOf(d time.Duration) int {
	v := uint64(d)
	shift := max(0, bits.Len64(v)-fine-1)
	return shift<<fine + int(v>>shift)
}

// middle returns the middle of a bucket.
func middle(bucket int) time.Duration {
	shift := max(0, bucket>>fine-1)
	first := uint64(bucket-shift<<fine) << shift
	return time.Duration(first + (1<<shift)/2)
}

// A histogram counts calls by their duration. The zero value is empty.
type histogram struct {
	counts  [buckets]int64
	longest time.Duration
}

func (h *histogram) note(d time.Duration) {
	d = max(0, d)
	h.counts[bucketOf(d)]++
	h.longest = max(h.longest, d)
}

func (h *histogram) add(g *histogram) {
	h.longest = max(h.longest, g.longest)
	for i, n := range g.counts {
		h.counts[i] += n
	}
}

func (h *histogram) quantile(part float64) time.Duration {
	total := int64(0)
	for _, n := range h.counts {
		total += n
	}
	rank := min(total, max(1, int64(math.Ceil(part*float64(total)))))
	for i, n := range h.counts {
		if rank -= n; rank <= 0 && n > 0 && part < 1 {
			return min(middle(i), h.longest)
		}
	}
	return h.longest
}
