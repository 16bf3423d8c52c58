package loglimit

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A Limiter lets the first value of a kind pass at once. Of the values that follow within a minute it keeps the last,
// and passes it when the minute is over; then another minute begins. It is safe for concurrent use.
type Limiter[K comparable, V any] struct {
	most int
	pass func(last V, left int)

	mu   sync.Mutex
	open map[K]*held[V] // kinds of which a value has passed in the last minute
}

// held is the values of one kind that are held back.
type held[V any] struct {
	count int
	last  V // valid if count > 0
}

// NewLimiter returns a limiter that distinguishes this many kinds at once, at most: a value of a further kind counts as
// of the zero kind. pass is called with the last value that was held back in a minute; left is how many earlier ones
// are dropped.
func NewLimiter[K comparable, V any](most int, pass func(last V, left int)) *Limiter[K, V] {
	return &Limiter[K, V]{most: most, pass: pass, open: make(map[K]*held[V])}
}

// Hold reports whether the value is held back.
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

// Flush ends all minutes, and passes the values that are held back in the order of compare.
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
