// Package ratelimit limits how much is used per second, without a lock.
package ratelimit

import (
	"math"
	"sync/atomic"
	"time"
)

// A Bucket admits uses at a rate and, after a rest, as much at once as the rate gives in the time of a burst. A use of
// any size is admitted while something is left, and may take more than is left: the bucket is then in debt, and admits
// nothing until the rate has paid it. So the uses in a time never exceed what the rate gives in it, plus one burst and
// the last use. It is safe for concurrent use, takes no lock and allocates nothing.
//
// A Bucket stores the time at which all past uses are paid. The rate may change between calls: past uses are paid at
// the rate that they had.
type Bucket struct {
	burst time.Duration
	paid  atomic.Int64 // ns of the clock of its callers
}

// New returns a full bucket. The times given to Take must be 0 or later.
func New(burst time.Duration) *Bucket {
	b := &Bucket{burst: burst}
	b.paid.Store(-int64(burst))
	return b
}

// Take uses n at a rate per second, and returns 0; or it uses nothing and returns how long
// to wait. now must come from one clock, which never goes back.
func (b *Bucket) Take(now time.Duration, n int64, perSecond float64) (wait time.Duration) {
	for cost := price(n, perSecond); ; {
		paid := b.paid.Load()
		from := max(paid, int64(now-b.burst))
		if from >= int64(now) {
			return time.Duration(from) - now + 1
		}
		if b.paid.CompareAndSwap(paid, from+cost) {
			return 0
		}
	}
}

// price returns how many ns the rate needs to pay n uses. It rounds up, so the rate is never exceeded. A rate of 0 or
// below pays nothing: the price is then the highest.
func price(n int64, perSecond float64) int64 {
	const most = math.MaxInt64 / 4
	if !(perSecond > 0) {
		return most
	}
	return int64(min(most, math.Ceil(float64(n)*float64(time.Second)/perSecond)))
}
