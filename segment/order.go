package segment

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// An order says whether a tag is strict, as far as its buffer knows.
type order int8

const (
	loose order = iota
	// strict: nothing is in memory, and each request is served from a load that it joined: see the third law.
	strict
	// doubtful: the tag may be strict. Requests wait, and IDs in memory stay there, until the order is known.
	doubtful
)

// orders records which tags are strict. It is guarded by tagSet.mu.
type orders struct {
	strict   map[string]bool
	doubtful bool
}

func (o *orders) of(tag string) order {
	switch {
	case o.doubtful:
		return doubtful
	case o.strict[tag]:
		return strict
	}
	return loose
}

// SetStrict sets which tags are strict; all others are loose. It keeps a copy of tags.
//
// Law: no request that begins after SetStrict has returned gets an ID of a strict tag that was loaded before. A load
// under way that was begun for another order brings a hole. A waiting request is served in the order that its tag has
// when it is served: once the tag is loose, perhaps from a range that was reserved before the request arrived.
func (a *Allocator) SetStrict(tags map[string]bool) {
	a.tags.setOrders(orders{strict: maps.Clone(tags)})
}

// Doubt declares that any tag may be strict: until SetStrict is called, requests wait, for the deadline at most, and
// no memory serves them.
func (a *Allocator) Doubt() { a.tags.setOrders(orders{doubtful: true}) }

// IsStrict reports whether a tag is strict, as far as is known.
func (a *Allocator) IsStrict(tag string) bool {
	a.tags.mu.Lock()
	defer a.tags.mu.Unlock()
	return a.tags.orders.strict[tag]
}

// AnyStrict reports whether any tag is strict, as far as is known.
func (a *Allocator) AnyStrict() bool {
	a.tags.mu.Lock()
	defer a.tags.mu.Unlock()
	return len(a.tags.orders.strict) > 0
}

// setOrders changes the order of all tags. While in doubt, it keeps the last known set of strict tags.
func (s *tagSet) setOrders(o orders) {
	s.ordering.Lock() // two concurrent calls would leave buffers of both orders
	defer s.ordering.Unlock()
	s.mu.Lock()
	if o.doubtful {
		o.strict = s.orders.strict
	}
	same := o.doubtful == s.orders.doubtful && maps.Equal(o.strict, s.orders.strict)
	s.orders = o
	s.mu.Unlock()
	if same {
		return
	}
	all := s.snapshot() // later buffers are created with the new order
	slices.SortFunc(all, func(a, b *buffer) int { return strings.Compare(a.tag, b.tag) })
	for _, b := range all {
		b.setOrder(o.of(b.tag))
	}
}

// setOrder changes the order of the tag. If the tag was strict or becomes strict, its loaded IDs and the load under way
// become holes.
func (b *buffer) setOrder(o order) {
	b.mu.Lock()
	s, now := &b.supply, b.set.clock.now()
	if o == s.order || s.closed {
		b.mu.Unlock()
		return
	}
	was := s.order
	s.setOrder(o)
	//mutant:order-change
	if o == strict || was == strict {
		b.discards++
		s.stock.discard(now)
	}
	answers := s.waiters.serve(&s.stock, nil)
	if s.waiters.any() || s.loader.loads > 0 {
		b.tendLocked()
	}
	b.mu.Unlock()
	deliver(answers)
}

// locked returns a function that calls f under a lock.
func locked[T any](mu *sync.Mutex, f func() T) func() T {
	return func() T {
		mu.Lock()
		defer mu.Unlock()
		return f()
	}
}

// setOrder seals the stock of a tag that is not loose.
func (s *supply) setOrder(o order) {
	s.stock.shut()
	s.order, s.stock.sealed = o, o != loose //mutant:seal
}

// join is called by the load of a strict tag before it sends its compare-and-set: the requests that wait now may be
// served from that load. It returns how many IDs they request in total, within 1..[MaxStep].
func (s *supply) join() int64 {
	s.joined = s.waiters.ever
	return max(1, min(MaxStep, s.waiters.demand())) //mutant:join
}

// serve answers the waiting requests from the loaded range. For a strict tag these are the requests that joined the
// load; the IDs that remain, such as those of requests that have expired, are holes.
func (s *supply) serve(now time.Duration) (answers []answer) {
	if s.order != strict {
		return s.waiters.serve(&s.stock, nil)
	}
	answers = s.waiters.serveUpTo(s.joined, &s.stock, nil) //mutant:joined
	s.stock.discard(now)                                   //mutant:left-over
	return answers
}
