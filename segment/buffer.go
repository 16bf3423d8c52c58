package segment

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A buffer holds the loaded ranges of one tag and the requests that wait for
// more. At rest it is Leaf's double buffer: a current range, and the next one,
// loaded once a tenth of the current one is used. Where that would not last as
// long as a load takes it is a chain: see [buffer.aheadLocked].
//
// What is left of the current range is open while nobody waits: requests take
// from it without the lock. As soon as somebody waits it is shut, and every
// request comes to the lock: so nobody overtakes who waits.
//
// At most one load of a tag is under way; requests look whether one is due, so
// a load that failed is tried again by the next request.
type buffer struct {
	tag string
	a   *Allocator

	open atomic.Pointer[run] // nil while shut; replaced under mu

	mu      sync.Mutex
	rest    []Range // loaded and not in the open run, in order, none empty
	restLen int64   // IDs in rest
	first   int64   // of the current range, as it was loaded: the one
	size    int64   // that the open run, or else rest[0], is what is left of
	loaded  int64   // IDs ever loaded
	floor   int64   // the highest end ever loaded, or least
	least   int64   // no ID below it may be handed out; it only rises
	queue   *queue  // who waits; nil if nobody
	gone    bool    // no longer among the allocator's tags
	changes int     // how often somebody told that the tag was changed
	// stranger says that no listing had the tag, and no load found it yet.
	stranger bool
	vouched  time.Duration // when a load, or somebody who told, said last that there is the tag
	pace
	loader
}

// A loader is what a buffer knows of the loads of its tag.
type loader struct {
	loading    bool // a goroutine runs load
	loads      int64
	errs       int64
	fails      int           // errors in a row
	took       time.Duration // of the last load that succeeded
	slowest    time.Duration // of those of late
	quietUntil time.Duration // no load unless somebody waits
	lastErr    error         // of the last load, if another may succeed
	retry      *backoff.ExponentialBackOff
}

// A pace is how fast the IDs of a tag go, and what follows from it.
type pace struct {
	speed      speedometer
	began      time.Duration // when the current range began to be used
	ended      int64         // IDs of ranges used up by the request under way
	last       usage         // of the last range; zero if none has been used up yet
	judged     bool          // step follows from last already
	step       int64         // of the next load; 0 before the first
	configured int64
	waits      int64 // requests that had to wait
}

func newBuffer(a *Allocator, tag string) *buffer {
	return &buffer{tag: tag, a: a, pace: pace{speed: newSpeedometer(a.now())}}
}

// next appends n IDs to dst, or returns ErrWait and takes none.
func (b *buffer) next(n int64, dst []Range) ([]Range, error) {
	if r := b.open.Load(); r != nil {
		if got, ok := r.take(n); ok {
			if got.End > r.check.Load() {
				b.look()
			}
			return append(dst, got), nil
		}
	}
	return b.nextSlowly(n, dst)
}

// nextSlowly is next for what the open run alone cannot serve.
func (b *buffer) nextSlowly(n int64, dst []Range) ([]Range, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue != nil || b.gone || b.heldLocked() < n {
		return dst, ErrWait
	}
	err := ErrWait
	b.shutLocked()
	if b.restLen >= n { // takers may have been faster
		dst, err = b.takeLocked(n, dst), nil
	}
	b.tendLocked()
	return dst, err
}

// look does what the IDs taken from the open run make due.
func (b *buffer) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.open.Load(); r != nil && r.left() == 0 {
		b.shutLocked()
	}
	b.tendLocked()
}

// tendLocked leaves the buffer as it must be whenever the lock is free: open
// unless somebody waits, a load under way if one is due. The check is set
// before it is asked whether one is: a request in between is seen by this
// call, or sees the check.
func (b *buffer) tendLocked() {
	now := b.a.now()
	b.paceLocked(now)
	b.openLocked()
	b.setCheckLocked(now)
	if !b.loading && b.dueLocked(now) {
		b.loading = b.a.spawn(b.load)
		b.setCheckLocked(now)
	}
}

func (b *buffer) openLocked() {
	if b.open.Load() != nil || b.queue != nil || b.gone || len(b.rest) == 0 {
		return
	}
	r := b.rest[0]
	b.rest = slices.Delete(b.rest, 0, 1)
	b.restLen -= r.Len()
	b.open.Store(newRun(r))
}

// shutLocked takes back what is left of the open run, if there is one.
func (b *buffer) shutLocked() {
	r := b.open.Load()
	if r == nil {
		return
	}
	b.open.Store(nil)
	left := r.shut()
	if left.Len() == 0 {
		b.endLocked()
		return
	}
	b.rest = slices.Insert(b.rest, 0, left)
	b.restLen += left.Len()
}

// takeLocked moves n IDs, which must be there, from rest to dst. The buffer
// must be shut.
func (b *buffer) takeLocked(n int64, dst []Range) []Range {
	b.restLen -= n
	for n > 0 {
		cur := &b.rest[0]
		part := Range{cur.Start, cur.Start + min(n, cur.Len())}
		dst = append(dst, part)
		n -= part.Len()
		if cur.Start = part.End; cur.Len() == 0 {
			b.rest = slices.Delete(b.rest, 0, 1)
			b.endLocked()
		}
	}
	return dst
}

// endLocked notes that the current range is used up: the next one follows.
func (b *buffer) endLocked() {
	b.ended += b.size
	b.first, b.size = 0, 0
	if len(b.rest) > 0 {
		b.first, b.size = b.rest[0].Start, b.rest[0].Len()
	}
}

// addLocked adds a range that has been loaded, but for what is below least.
func (b *buffer) addLocked(r Range, now time.Duration) {
	b.floor = max(b.floor, r.End)
	if r.Start = max(r.Start, b.least); r.Len() <= 0 {
		return
	}
	if b.size == 0 {
		b.first, b.size, b.began = r.Start, r.Len(), now
	}
	b.rest = append(b.rest, r)
	b.restLen += r.Len()
	b.loaded += r.Len()
}

// heldLocked returns how many IDs are in memory; fewer at any time while open.
func (b *buffer) heldLocked() int64 {
	if r := b.open.Load(); r != nil {
		return b.restLen + r.left()
	}
	return b.restLen
}

// askedLocked returns how many IDs were ever asked for: given, or waited for.
func (b *buffer) askedLocked() int64 { return b.loaded - b.heldLocked() + b.queue.demand() }

// paceLocked reads the speed, and notes how long a range lasted that has been
// used up. Ranges that one request used up together count as one: each by
// itself took no time.
func (b *buffer) paceLocked(now time.Duration) {
	b.speed.note(now, b.askedLocked())
	if b.ended > 0 {
		b.last, b.judged = usage{b.ended, now - b.began}, false
		b.began, b.ended = now, 0
	}
}

// errGone is returned by park when the buffer has been forgotten or closed.
var errGone = errors.New("segment: the buffer is gone")

// park adds a waiter to the queue and makes sure that a load is under way.
func (b *buffer) park(w waiter) error {
	b.mu.Lock()
	if b.gone || b.queue.len() >= b.a.cfg.MaxWaiting {
		defer b.mu.Unlock()
		if b.gone {
			return errGone
		}
		return ErrTooMany
	}
	b.waits++
	b.shutLocked()
	if b.queue == nil {
		b.queue = newQueue(time.AfterFunc(time.Until(w.expires), b.expire))
	}
	b.queue.push(w)
	// A load may have ended since next said ErrWait.
	answers := b.serveLocked(nil)
	b.tendLocked()
	b.mu.Unlock()
	deliver(answers)
	return nil
}

// serveLocked takes waiters off the head of the queue as long as there are
// IDs for them. The buffer must be shut.
func (b *buffer) serveLocked(answers []outcome) []outcome {
	for b.queue != nil && b.queue.head().n <= b.restLen {
		w := b.popLocked()
		answers = append(answers, outcome{done: w.done, ranges: b.takeLocked(w.n, nil)})
	}
	return answers
}

// refuseLocked refuses the waiters for whom there are not enough IDs, and
// serves the others.
func (b *buffer) refuseLocked(err error) (answers []outcome) {
	for answers = b.serveLocked(nil); b.queue != nil; answers = b.serveLocked(answers) {
		answers = append(answers, outcome{done: b.popLocked().done, err: err})
	}
	return answers
}

// popLocked takes the first waiter off the queue, and ends the queue with the
// last one.
func (b *buffer) popLocked() waiter {
	w := b.queue.pop()
	if b.queue.len() == 0 {
		b.queue.expiry.Stop()
		b.queue = nil
	}
	return w
}

// expire refuses the waiters whose deadline has come.
func (b *buffer) expire() {
	b.mu.Lock()
	err := ErrNotLoaded
	if b.lastErr != nil {
		err = fmt.Errorf("%w: %w", ErrNotLoaded, b.lastErr)
	}
	var answers []outcome
	for now := time.Now(); b.queue != nil && !b.queue.head().expires.After(now); {
		answers = append(answers, outcome{done: b.popLocked().done, err: err})
	}
	// The head may have asked for more than there was; who came after it may not.
	answers = b.serveLocked(answers)
	if b.queue != nil {
		b.queue.expiry.Reset(time.Until(b.queue.head().expires))
	}
	b.tendLocked()
	b.mu.Unlock()
	deliver(answers)
}

// close refuses whoever waits, now and later.
func (b *buffer) close() {
	b.mu.Lock()
	b.gone = true
	b.shutLocked()
	answers := b.refuseLocked(ErrClosed)
	b.mu.Unlock()
	deliver(answers)
}
