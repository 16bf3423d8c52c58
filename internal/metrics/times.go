package metrics

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The bounds of the buckets are powers of two of a nanosecond: 1 us to 4 s.
const (
	leastBits = 10
	mostBits  = 32
)

// Times is a histogram of times that costs two atomic additions for each. It is safe
// for concurrent use.
type times struct {
	desc    *prometheus.Desc
	always  bool                        // exposed before the first time, too
	sum     atomic.Int64                // ns
	buckets [mostBits + 2]atomic.Uint64 // bucket n: up to 2^n ns; the last one: more
}

// observe counts a time.
func (t *times) observe(d time.Duration) {
	t.sum.Add(int64(max(d, 0)))
	t.buckets[min(bits.Len64(uint64(max(d, 1)-1)), mostBits+1)].Add(1)
}

// Describe implements [prometheus.Collector].
func (t *times) Describe(descs chan<- *prometheus.Desc) { descs <- t.desc }

// Collect implements [prometheus.Collector].
func (t *times) Collect(series chan<- prometheus.Metric) {
	below := make(map[float64]uint64)
	var count uint64
	for n := range t.buckets {
		count += t.buckets[n].Load()
		if leastBits <= n && n <= mostBits {
			below[time.Duration(1<<n).Seconds()] = count
		}
	}
	if count == 0 && !t.always {
		return
	}
	sum := time.Duration(t.sum.Load()).Seconds()
	series <- prometheus.MustNewConstHistogram(t.desc, count, sum, below)
}
