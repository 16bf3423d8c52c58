// Package latency estimates how long an operation takes from how long it took lately.
package latency

import (
	"sync/atomic"
	"time"
)

// A Slowest is the slowest of recent samples: a slower sample replaces it, and each other one lowers it by an eighth,
// though not below that sample. The zero value has no sample yet. It is safe for concurrent use.
type Slowest struct{ ns atomic.Int64 }

// Note takes a sample.
func (s *Slowest) Note(took time.Duration) {
	for {
		old := s.ns.Load()
		if s.ns.CompareAndSwap(old, max(int64(took), old-old/8)) {
			return
		}
	}
}

// Get returns the estimate, 0 before the first sample.
func (s *Slowest) Get() time.Duration { return time.Duration(s.ns.Load()) }
