package loglimit

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A Limiter passes at most one value of each kind a minute. The first value passes at once. Of the values within a
// minute after it the last passes when the minute ends, and begins another minute. It is safe for concurrent use.
type Limiter[K comparable, V any] struct {
	most int
	pass func(last V, left int)

	mu   sync.Mutex
	open map[K]*held[V] // the kinds with a minute that has not ended
}

// held has the values of one kind that are held back.
type held[V any] struct {
	count int
	last  V // valid if count > 0
}

// NewLimiter returns a limiter that distinguishes at most this many kinds at once. Values of further kinds count as
// values of the zero kind. When a minute ends, pass is called with the last value that was held back; left is how many
// values were dropped before it.
func NewLimiter[K comparable, V any](most int, pass func(last V, left int)) *Limiter[K, V] {
	return &Limiter[K, V]{most: most, pass: pass, open: make(map[K]*held[V])}
}

// Hold reports whether the limiter holds the value back. If not, the caller passes it on.
func (l *Limiter[K, V]) Hold(k K, v V) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.open[k]
	if h == nil && len(l.open) >= l.most {
		k = *new(K)
		h = l.open[k]
	}
	if h == nil {
		l.begin(k)
		return false
	}
	h.count, h.last = h.count+1, v
	return true
}

// begin begins the minute of a kind. The lock is held.
func (l *Limiter[K, V]) begin(k K) {
	l.open[k] = new(held[V])
	time.AfterFunc(Every, func() { l.end(k) })
}

// end ends the minute of a kind.
func (l *Limiter[K, V]) end(k K) {
	l.mu.Lock()
	h := l.open[k] // nil after Flush
	delete(l.open, k)
	if h != nil && h.count > 0 {
		l.begin(k)
	}
	l.mu.Unlock()
	l.passOn(h)
}

func (l *Limiter[K, V]) passOn(h *held[V]) {
	if h != nil && h.count > 0 {
		l.pass(h.last, h.count-1)
	}
}

// Flush ends all minutes, and passes on the values that are held back, in the order of compare.
func (l *Limiter[K, V]) Flush(compare func(a, b V) int) {
	l.mu.Lock()
	open := l.open
	l.open = make(map[K]*held[V])
	l.mu.Unlock()
	byValue := func(a, b *held[V]) int { return compare(a.last, b.last) }
	for _, h := range slices.SortedFunc(maps.Values(open), byValue) {
		l.passOn(h)
	}
}
