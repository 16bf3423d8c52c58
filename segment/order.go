package segment

import (
	"sync"
	"time"
)

// IsStrict reports whether a tag is strict, as far as its memory shows: see [ErrStrict].
func (a *Allocator) IsStrict(tag string) bool {
	b := a.tags.get(tag)
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.supply.isStrict
}

// seal makes the tag strict, since load l, which has no range, found it to be. IDs in memory become holes: the tag has
// some only if an operator replaced a loose tag of the name.
func (b *buffer) seal(l Loaded) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.supply
	s.isStrict, s.stock.sealed = true, true
	s.era, s.isRuled = l.Era, true
	s.stock.discard(b.set.clock.now())
	b.obey(l.Rules)
}

// locked returns a function that calls f under a lock.
func locked[T any](mu *sync.Mutex, f func() T) func() T {
	return func() T {
		mu.Lock()
		defer mu.Unlock()
		return f()
	}
}

// join is called by the load of a strict tag before it sends its compare-and-set: the requests that wait now may be
// served from that load. It returns how many IDs they request in total, within 1..[MaxStep].
func (s *supply) join() int64 {
	s.joined = s.waiters.ever
	return max(1, min(MaxStep, s.waiters.demand())) //mutant:join
}

// serve answers waiting requests from the loaded range; those of a strict tag only if they joined the load. The rest of
// a strict tag's range, as for requests that expired, is a hole.
func (s *supply) serve(now time.Duration) (answers []answer) {
	if !s.isStrict {
		return s.waiters.serve(&s.stock, nil)
	}
	answers = s.waiters.serveUpTo(s.joined, &s.stock, nil) //mutant:joined
	s.stock.discard(now)                                   //mutant:left-over
	return answers
}
