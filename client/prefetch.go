package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// A stock holds IDs for future calls, by the law Prefetch of docs/client-laws.md. Each ID is given once: a call takes a
// place in a span by one atomic addition, and no two replies of natsid hold the same ID. Places of a used-up or
// outdated span are never given again.
type stock struct {
	target *target
	header nats.Header
	n      int
	maxAge time.Duration
	now    atomic.Pointer[span] // the span to draw from

	mu       sync.Mutex
	later    []*span       // the spans to draw from after that
	newest   *block        // the block of the last span in later
	isAsking bool          // a request is under way
	waiting  int           // calls that wait for the answer to the request
	arrived  chan struct{} // closed when that request has ended
	err      error         // error of the last request
}

// A span is consecutive IDs, with a place for each.
type span struct {
	taken  atomic.Int64 // number of places taken by calls; size or more: none is left
	first  subjects.ID
	size   int64
	refill int64 // the place at which the next request is sent; -1 means none
	block  *block
}

// A block has the IDs of one request.
//
// The IDs are too old when maxAge has passed by the monotonic or by the wall clock: the monotonic clock, and timers
// with it, stand still while a machine is suspended. If the wall clock is set ahead, the IDs become a hole; if it is
// set back, the monotonic clock counts.
type block struct {
	until  time.Time // when the IDs are too old, by the monotonic clock
	by     time.Time // the same by the wall clock
	wall   func() time.Time
	follow time.Duration // the next block is requested this long before until; 0 once it was
	stale  atomic.Bool
	spans  []*span
	timer  *time.Timer // sets stale
}

const (
	usedUp = 1 << 62
	// At one place in lookEvery a call reads the clock, since the timer is late if the process was paused, and checks
	// whether the next request is due. It is a power of two.
	lookEvery = 64
	// wakeEvery is how often a timer checks the age of a block: a single timer for its end would stand still while the
	// machine is suspended, and 64 calls may take long.
	wakeEvery = 5 * time.Second
)

func newStock(s *target, n int, maxAge time.Duration) *stock {
	header := nats.Header{subjects.HeaderPrefetch: {maxAge.String()}}
	k := &stock{target: s, header: header, n: n, maxAge: maxAge, arrived: make(chan struct{})}
	k.now.Store(&span{block: new(block), refill: -1})
	return k
}

// place takes a place in the present span. It is small, so that it is inlined.
func (k *stock) place() (*span, int64) {
	s := k.now.Load()
	return s, s.taken.Add(1) - 1
}

// isPlain reports whether the ID at a place of a span may be used without a check of its age.
func (s *span) isPlain(place int64) bool { return place < s.size && place&(lookEvery-1) != 0 }

// next returns the ID at a place that a call has taken, or waits for another ID if that place is not usable.
func (k *stock) next(ctx context.Context, s *span, i int64) (id subjects.ID, err error) {
	if i < s.size && k.look(s, i) {
		return s.first + subjects.ID(i), nil
	}
	began := time.Now()
	defer func() { k.target.observe(ctx, began, 1, err) }()
	bounded, cancel := k.target.client.bounded(ctx)
	defer cancel()
	for {
		if err := k.wait(bounded, s); err != nil {
			return 0, err
		}
		if s, i = k.place(); i < s.size && k.look(s, i) {
			return s.first + subjects.ID(i), nil
		}
	}
}

// look sends the next request if it is due, and reports whether the IDs of the span may still be used.
func (k *stock) look(s *span, place int64) bool {
	if place == s.refill {
		k.mu.Lock()
		if k.newest == s.block { // the next block has not arrived
			k.ask()
		}
		k.mu.Unlock()
	}
	return s.block.isFresh()
}

func (b *block) isFresh() bool {
	if b.stale.Load() {
		return false
	}
	if b.left() > 0 {
		return true
	}
	b.expire()
	return false
}

// left returns how long the IDs of a block may still be used: the shorter of the times by the two clocks.
func (b *block) left() time.Duration {
	left := time.Until(b.until)
	if left > 0 {
		left = min(left, b.by.Sub(b.wall().Round(0)))
	}
	return left
}

// expire discards the remaining IDs of a block.
func (b *block) expire() {
	b.stale.Store(true)
	for _, s := range b.spans {
		s.taken.Store(usedUp)
	}
}

// wait returns when the stock has another span than s to draw from.
func (k *stock) wait(ctx context.Context, s *span) error {
	if err := ctx.Err(); err != nil {
		return k.target.gaveUp(err)
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
	var ended error
	select {
	case <-arrived:
	case <-ctx.Done():
		ended = k.target.gaveUp(ctx.Err())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting--
	if ended == nil && len(k.later) == 0 && !k.isAsking {
		ended = k.err
	}
	return ended
}

// advance replaces s by the next span, and reports whether the stock has another span than s. k.mu is held.
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
	isLeft := func(s *span) bool { return s.taken.Load() < s.size }
	if b := s.block; b.timer != nil && !slices.ContainsFunc(b.spans, isLeft) {
		b.timer.Stop() // it would keep the block in memory until it is too old
	}
	return true
}

func (k *stock) dropStale() {
	k.later = slices.DeleteFunc(k.later, func(s *span) bool { return !s.block.isFresh() })
}

// ask sends a request unless one is under way. k.mu is held.
func (k *stock) ask() {
	if k.isAsking {
		return
	}
	k.isAsking = true
	f := &flight{target: k.target, n: k.n, header: k.header, wanted: k.isWanted, done: k.receive}
	go f.launch() // the flight may end at once, and its callback takes k.mu
}

// isWanted reports whether the answer to a request is still useful: a call waits, or the held IDs will run out.
func (k *stock) isWanted() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.waiting > 0 || k.now.Load().block.isFresh()
}

// receive handles the answer to a request.
func (k *stock) receive(a answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isAsking, k.err = false, a.err
	if errors.Is(a.err, errUnwanted) {
		k.err = nil // calls that wait for another span ask again
	}
	if a.err == nil {
		k.put(a)
	}
	close(k.arrived)
	k.arrived = make(chan struct{})
}

// put appends the IDs of an answer to the held ones. k.mu is held.
func (k *stock) put(a answer) {
	b := &block{
		until: a.sent.Add(k.maxAge), by: a.wall.Round(0).Add(k.maxAge), wall: k.target.client.wall,
		follow: k.maxAge / 4,
	}
	half := int64(k.n / 2)
	for _, r := range a.runs {
		s := &span{first: r.First, size: r.Len(), refill: -1, block: b}
		if 0 <= half && half < s.size {
			s.refill = half - half%lookEvery
		}
		half -= s.size
		b.spans = append(b.spans, s)
	}
	k.later, k.newest = append(k.later, b.spans...), b
	b.timer = time.AfterFunc(b.pause(b.left()), func() { k.tick(b) })
}

// pause returns the time until the next check of a block that may be used for the time left.
func (b *block) pause(left time.Duration) time.Duration { return min(max(0, left-b.follow), wakeEvery) }

// tick is called by the timer of a block: at least every wakeEvery, when the block will soon be too old, and when it is
// too old. When it will soon be, tick requests the next block if calls have used this one.
func (k *stock) tick(b *block) {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := b.left()
	if left <= 0 {
		b.expire()
		return
	}
	if 0 < b.follow && left <= b.follow {
		b.follow = 0
		if k.newest == b && k.now.Load().block.isUsed() {
			k.ask()
		}
	}
	b.timer.Reset(b.pause(left))
}

// isUsed reports whether a call has got an ID of the block, and the block is not too old.
func (b *block) isUsed() bool {
	return !b.stale.Load() && slices.ContainsFunc(b.spans, func(s *span) bool { return s.taken.Load() > 0 })
}

// held returns how many IDs are held for future calls.
func (k *stock) held() (n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range append([]*span{k.now.Load()}, k.later...) {
		n += max(0, s.size-s.taken.Load())
	}
	return n
}
