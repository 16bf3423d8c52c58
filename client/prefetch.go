package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// A stock holds IDs for calls to come. Each is given once: a call takes a place in a
// span by one atomic addition, and no two replies of natsid hold the same ID. Places
// of a span that is used up or too old are never taken again.
type stock struct {
	src    *source
	header nats.Header
	n      int
	maxAge time.Duration
	now    atomic.Pointer[span] // the one that is drawn from

	mu      sync.Mutex
	later   []*span       // for when that is used up
	asks    bool          // a request is under way
	waiting int           // calls, for its answer
	arrived chan struct{} // closed when it has ended
	err     error         // why the last one failed
}

// A span is a run of IDs, or a part of one.
type span struct {
	taken  atomic.Int64 // places, by calls; usedUp or more: there is none left
	first  int64
	size   int64
	refill int64 // the place at which the next request is sent; -1: at none
	block  *block
}

// A block is the IDs of one request.
type block struct {
	until time.Time // when they are too old
	stale atomic.Bool
	spans []*span
}

const (
	usedUp = 1 << 62
	// lookEvery is how many places lie between two at which a call looks at the clock,
	// since the timer is late where the whole process was paused, and whether it is
	// time for the next request. It is a power of two.
	lookEvery = 64
	// chunkMost is how many IDs a [Local] takes at a time, at most, and an eighth of
	// the range at most, or a few would hold all of it.
	chunkMost = 1024
)

func newStock(s *source, n int, maxAge time.Duration, header nats.Header) *stock {
	k := &stock{src: s, header: header, n: n, maxAge: maxAge, arrived: make(chan struct{})}
	k.now.Store(&span{block: new(block), refill: -1})
	return k
}

// place takes a place in the span that is drawn from. It is small, to be inlined.
func (k *stock) place() (*span, int64) {
	s := k.now.Load()
	return s, s.taken.Add(1) - 1
}

// isPlain reports whether the ID at a place of a span may be used without a look.
func (s *span) isPlain(place int64) bool { return place < s.size && place&(lookEvery-1) != 0 }

// next returns the ID at a place that a call has taken, or waits for one if it is not there.
func (k *stock) next(ctx context.Context, s *span, i int64) (ID, error) {
	for i >= s.size || !k.look(s, i, 1) {
		if err := k.wait(ctx, s); err != nil {
			return 0, err
		}
		s, i = k.place()
	}
	return ID(s.first + i), nil
}

// take returns some IDs that are held, from first to before end, or waits for them.
func (k *stock) take(ctx context.Context) (first, end int64, b *block, err error) {
	most := int64(min(max(k.n/8, 1), chunkMost))
	for {
		s := k.now.Load()
		if i := s.taken.Add(most) - most; i < s.size && k.look(s, i, most) {
			return s.first + i, s.first + min(i+most, s.size), s.block, nil
		}
		if err := k.wait(ctx, s); err != nil {
			return 0, 0, nil, err
		}
	}
}

// look sends the next request if it is time, and reports whether the IDs may be used.
func (k *stock) look(s *span, place, n int64) bool {
	if place <= s.refill && s.refill < place+n {
		k.mu.Lock()
		k.ask()
		k.mu.Unlock()
	}
	return s.block.isFresh()
}

func (b *block) isFresh() bool {
	if b.stale.Load() {
		return false
	}
	if time.Now().Before(b.until) {
		return true
	}
	b.expire()
	return false
}

// expire throws away what is left.
func (b *block) expire() {
	b.stale.Store(true)
	for _, s := range b.spans {
		s.taken.Store(usedUp)
	}
}

// wait returns when there is another span than s to draw from.
func (k *stock) wait(ctx context.Context, s *span) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	k.mu.Lock()
	if k.advance(s) {
		k.mu.Unlock()
		return nil
	}
	k.ask()
	arrived := k.arrived
	k.waiting++
	k.mu.Unlock()
	ctx, cancel := k.src.client.bounded(ctx)
	defer cancel()
	var ended error
	select {
	case <-arrived:
	case <-ctx.Done():
		ended = k.src.gaveUp(ctx.Err())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting--
	if ended == nil && len(k.later) == 0 && !k.asks {
		ended = k.err
	}
	return ended
}

// advance replaces s by the next span, and reports whether there is another than s.
// k.mu is held.
func (k *stock) advance(s *span) bool {
	if k.now.Load() != s {
		return true
	}
	k.dropStale()
	if len(k.later) == 0 {
		return false
	}
	next := k.later[0]
	k.later = k.later[1:]
	k.now.Store(next)
	return true
}

func (k *stock) dropStale() {
	k.later = slices.DeleteFunc(k.later, func(s *span) bool { return !s.block.isFresh() })
}

// ask sends a request unless one is under way, or its answer is there already. k.mu is
// held.
func (k *stock) ask() {
	if k.asks {
		return
	}
	k.asks = true
	f := &flight{src: k.src, n: k.n, header: k.header, wanted: k.isWanted, done: k.receive}
	go f.launch() // it may end at once, and hand the answer to who holds k.mu
}

// isWanted reports whether a call waits, or a range is held that the answer would follow.
func (k *stock) isWanted() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.waiting > 0 || k.now.Load().block.isFresh()
}

// receive takes the answer to a request.
func (k *stock) receive(a answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asks, k.err = false, a.err
	if errors.Is(a.err, errUnwanted) {
		k.err = nil // whoever has come since asks again
	}
	if a.err == nil {
		k.put(a)
	}
	close(k.arrived)
	k.arrived = make(chan struct{})
}

// put puts the IDs of an answer behind those that are held. k.mu is held.
func (k *stock) put(a answer) {
	b := &block{until: a.sent.Add(k.maxAge)}
	half := int64(k.n / 2)
	for _, r := range a.runs {
		s := &span{first: r.First, size: r.Len(), refill: -1, block: b}
		if 0 <= half && half < s.size {
			s.refill = half - half%lookEvery
		}
		half -= s.size
		b.spans = append(b.spans, s)
	}
	k.later = append(k.later, b.spans...)
	// Before a range that is in use becomes too old, the next is there.
	time.AfterFunc(max(0, time.Until(b.until)-k.maxAge/4), func() {
		if b.isUsed() && !b.stale.Load() {
			k.mu.Lock()
			k.ask()
			k.mu.Unlock()
		}
		time.AfterFunc(time.Until(b.until), b.expire)
	})
}

// isUsed reports whether a call has got an ID of the block.
func (b *block) isUsed() bool {
	return slices.ContainsFunc(b.spans, func(s *span) bool { return s.taken.Load() > 0 })
}

// held returns how many IDs wait for a call.
func (k *stock) held() (n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range append([]*span{k.now.Load()}, k.later...) {
		n += max(0, s.size-s.taken.Load())
	}
	return n
}

// A Local draws the IDs of a [Handle] for one goroutine: it is faster, since it takes
// some at a time, and not safe for concurrent use. IDs of several are not ordered among
// them. What it holds when it is dropped is a hole. Without [Prefetch] it calls
// [Handle.Next].
type Local struct {
	handle    *Handle
	next, end int64
	block     *block
}

// Local returns a new Local.
func (h *Handle) Local() *Local { return &Local{handle: h} }

// Next returns one ID. Errors are those of [Handle.Next].
func (l *Local) Next(ctx context.Context) (ID, error) {
	if l.next < l.end && !l.block.stale.Load() && (l.next&(lookEvery-1) != 0 || l.block.isFresh()) {
		l.next++
		return ID(l.next - 1), nil
	}
	return l.nextSlow(ctx)
}

func (l *Local) nextSlow(ctx context.Context) (id ID, err error) {
	k := l.handle.stock
	if k == nil {
		return l.handle.Next(ctx)
	}
	if l.next, l.end, l.block, err = k.take(ctx); err != nil {
		return 0, err
	}
	l.next++
	return ID(l.next - 1), nil
}
