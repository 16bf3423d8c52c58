package measure

import (
	"math"
	"math/bits"
	"sync/atomic"
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

// Callers write into one of few histograms, so that they seldom contend.
type shards [8]struct {
	counts  [buckets]atomic.Int64
	longest atomic.Int64
}

func (s *shards) note(caller int, d time.Duration) {
	at := &s[caller%len(s)]
	d = max(0, d)
	at.counts[bucketOf(d)].Add(1)
	for longest := at.longest.Load(); int64(d) > longest; longest = at.longest.Load() {
		if at.longest.CompareAndSwap(longest, int64(d)) {
			return
		}
	}
}

// sum returns the sum of all shards.
func (s *shards) sum() *histogram {
	h := new(histogram)
	for i := range s {
		for b := range h.counts {
			h.counts[b] += s[i].counts[b].Load()
		}
		h.longest = max(h.longest, time.Duration(s[i].longest.Load()))
	}
	return h
}
