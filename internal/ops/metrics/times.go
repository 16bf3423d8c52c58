package metrics

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The bounds of the buckets are powers of two, in nanoseconds: from about 1 us to about 4 s.
const (
	leastBits = 10
	mostBits  = 32
)

// A times is a histogram of durations. Counting one costs two atomic additions, to adjacent memory for short times. It
// is safe for concurrent use.
type times struct {
	sum atomic.Int64 // ns
	// Bucket n counts times above 2^(leastBits+n-1) and up to 2^(leastBits+n) ns; the first also counts shorter ones,
	// and the last longer ones.
	buckets [mostBits - leastBits + 2]atomic.Uint64
	desc    *prometheus.Desc
	always  bool // exposed even before a time is counted
}

func (t *times) observe(d time.Duration) {
	t.sum.Add(int64(max(d, 0)))
	n := bits.Len64(uint64(max(d, 1) - 1))
	t.buckets[min(max(n, leastBits), mostBits+1)-leastBits].Add(1)
}

func (t *times) count() (all uint64) {
	for n := range t.buckets {
		all += t.buckets[n].Load()
	}
	return all
}

// Describe implements [prometheus.Collector].
func (t *times) Describe(descs chan<- *prometheus.Desc) { descs <- t.desc }

// Collect implements [prometheus.Collector].
func (t *times) Collect(series chan<- prometheus.Metric) {
	below := make(map[float64]uint64)
	var count uint64
	for n := range t.buckets {
		if count += t.buckets[n].Load(); n < len(t.buckets)-1 {
			below[time.Duration(1<<(leastBits+n)).Seconds()] = count
		}
	}
	if count == 0 && !t.always {
		return
	}
	sum := time.Duration(t.sum.Load()).Seconds()
	series <- prometheus.MustNewConstHistogram(t.desc, count, sum, below)
}
