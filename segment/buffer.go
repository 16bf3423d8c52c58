package segment

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A buffer holds the loaded ranges of one tag and the requests that wait for
// more. At rest it is Leaf's double buffer: a current range, and the next one,
// loaded once a tenth of the current one is used. A request for more than
// that makes it hold as many ranges as it takes.
//
// At most one load of a tag is under way; every request looks whether one is
// due, so a load that failed is tried again by the next request.
type buffer struct {
	tag string
	a   *Allocator

	mu      sync.Mutex
	ranges  []Range // the current one first, none empty
	left    int64   // IDs in ranges
	floor   int64   // the highest end ever loaded
	size    int64   // of the current range when it was loaded
	loading bool    // a goroutine runs load
	waiters []waiter
	demand  int64 // IDs that waiters ask for
	expiry  *time.Timer
	lastErr error // of the last load, if another may succeed
	gone    bool  // no longer among the allocator's tags
	retry   *backoff.ExponentialBackOff
	speed   speedometer
}

// A waiter is a parked request.
type waiter struct {
	n       int64
	expires time.Time
	done    func([]Range, error)
}

// An outcome is an answer to a waiter, to be delivered without the lock.
type outcome struct {
	done   func([]Range, error)
	ranges []Range
	err    error
}

func newBuffer(a *Allocator, tag string) *buffer {
	return &buffer{tag: tag, a: a, speed: speedometer{prev: reading{at: time.Now()}, last: reading{at: time.Now()}},
		retry: backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(10*time.Millisecond),
			backoff.WithMaxInterval(250*time.Millisecond),
			backoff.WithMaxElapsedTime(0))}
}

// next appends n IDs to dst, or returns ErrWait and takes none. Nobody
// overtakes a request that waits.
func (b *buffer) next(n int64, dst []Range) ([]Range, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiters) > 0 || b.left < n {
		return dst, ErrWait
	}
	dst = b.takeLocked(n, dst)
	b.loadIfDueLocked()
	return dst, nil
}

// errGone is returned by park when the buffer has been forgotten or closed.
var errGone = errors.New("segment: the buffer is gone")

// park adds a waiter to the queue and makes sure that a load is under way.
func (b *buffer) park(w waiter) error {
	b.mu.Lock()
	if b.gone || len(b.waiters) >= b.a.cfg.MaxWaiting {
		defer b.mu.Unlock()
		if b.gone {
			return errGone
		}
		return ErrTooMany
	}
	b.waiters = append(b.waiters, w)
	b.demand += w.n
	if len(b.waiters) == 1 {
		b.setExpiryLocked()
	}
	// A load may have ended since next said ErrWait.
	answers := b.serveLocked(nil)
	b.loadIfDueLocked()
	b.mu.Unlock()
	deliver(answers)
	return nil
}

// takeLocked moves n IDs, which must be there, from the ranges to dst.
func (b *buffer) takeLocked(n int64, dst []Range) []Range {
	b.left -= n
	b.speed.issued += n
	for n > 0 {
		cur := &b.ranges[0]
		part := Range{cur.Start, cur.Start + min(n, cur.Len())}
		dst = append(dst, part)
		n -= part.Len()
		if cur.Start = part.End; cur.Len() == 0 {
			b.ranges = append(b.ranges[:0], b.ranges[1:]...)
			if len(b.ranges) > 0 {
				b.size = b.ranges[0].Len()
			}
		}
	}
	return dst
}

// dueLocked reports whether a load should be under way: somebody waits, or
// the next range is not there and a tenth of the current one is used.
func (b *buffer) dueLocked() bool {
	if len(b.waiters) > 0 || len(b.ranges) == 0 {
		return true
	}
	return len(b.ranges) == 1 && b.left <= b.size-b.size/10
}

func (b *buffer) loadIfDueLocked() {
	if !b.loading && b.dueLocked() {
		b.loading = b.a.spawn(b.load)
	}
}

// load loads ranges until none is due. After a failure it pauses, and goes on
// only if somebody waits: otherwise the next request begins anew.
func (b *buffer) load() {
	for {
		b.mu.Lock()
		n, floor := b.demand-b.left, b.floor
		b.mu.Unlock()
		r, err := b.a.loadRange(b.tag, max(n, 0), floor)
		if pause := b.takeIn(r, err); !b.a.sleep(pause) || !b.loadOn(err) {
			return
		}
	}
}

// takeIn books the outcome of a load, answers whom it can, and returns how
// long to pause before the next load.
func (b *buffer) takeIn(r Range, err error) (pause time.Duration) {
	b.mu.Lock()
	var answers []outcome
	b.lastErr = nil
	switch {
	case err == nil:
		b.retry.Reset()
		b.addLocked(r)
		answers = b.serveLocked(nil)
	case isFinal(err):
		answers = b.refuseLocked(err)
	default:
		b.lastErr = err
		pause = b.retry.NextBackOff()
	}
	b.mu.Unlock()
	deliver(answers)
	return pause
}

// loadOn reports whether another load follows one that ended with err. If
// not, a tag that never had a range is forgotten, lest names that do not
// exist fill the memory.
func (b *buffer) loadOn(err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loading = len(b.waiters) > 0 || err == nil && b.dueLocked()
	if !b.loading && b.floor == 0 {
		b.gone = true
		b.a.forget(b)
	}
	return b.loading
}

func (b *buffer) addLocked(r Range) {
	if len(b.ranges) == 0 {
		b.size = r.Len()
	}
	b.ranges = append(b.ranges, r)
	b.left += r.Len()
	b.floor = r.End
	b.speed.mark(time.Now())
}

// isFinal reports whether a load failed for a reason that waiting cannot mend.
func isFinal(err error) bool {
	return errors.Is(err, ErrUnknownTag) || errors.Is(err, ErrExhausted) || errors.Is(err, ErrBadRow)
}

// serveLocked takes waiters off the head of the queue as long as there are
// IDs for them.
func (b *buffer) serveLocked(answers []outcome) []outcome {
	for len(b.waiters) > 0 && b.waiters[0].n <= b.left {
		w := b.popLocked()
		answers = append(answers, outcome{done: w.done, ranges: b.takeLocked(w.n, nil)})
	}
	return answers
}

// refuseLocked refuses the waiters for whom there are not enough IDs, and
// serves the others.
func (b *buffer) refuseLocked(err error) (answers []outcome) {
	for answers = b.serveLocked(nil); len(b.waiters) > 0; answers = b.serveLocked(answers) {
		answers = append(answers, outcome{done: b.popLocked().done, err: err})
	}
	return answers
}

func (b *buffer) popLocked() waiter {
	w := b.waiters[0]
	b.waiters[0] = waiter{}
	b.waiters = b.waiters[1:]
	b.demand -= w.n
	return w
}

// setExpiryLocked makes expire run when the first waiter's time is up. All
// wait equally long, so the first to come is the first to expire.
func (b *buffer) setExpiryLocked() {
	if len(b.waiters) == 0 {
		return
	}
	d := time.Until(b.waiters[0].expires)
	if b.expiry == nil {
		b.expiry = time.AfterFunc(d, b.expire)
		return
	}
	b.expiry.Reset(d)
}

// expire refuses the waiters whose deadline has come.
func (b *buffer) expire() {
	b.mu.Lock()
	var answers []outcome
	for now := time.Now(); len(b.waiters) > 0 && !b.waiters[0].expires.After(now); {
		err := ErrNotLoaded
		if b.lastErr != nil {
			err = fmt.Errorf("%w: %w", ErrNotLoaded, b.lastErr)
		}
		answers = append(answers, outcome{done: b.popLocked().done, err: err})
	}
	b.setExpiryLocked()
	// The head may have asked for more than there was; who came after it may not.
	answers = b.serveLocked(answers)
	b.mu.Unlock()
	deliver(answers)
}

// close refuses whoever waits, now and later.
func (b *buffer) close() {
	b.mu.Lock()
	b.gone = true
	answers := b.refuseLocked(ErrClosed)
	if b.expiry != nil {
		b.expiry.Stop()
	}
	b.mu.Unlock()
	deliver(answers)
}

func deliver(answers []outcome) {
	for _, o := range answers {
		o.done(o.ranges, o.err)
	}
}

// A speedometer measures how fast IDs are used: over the time since the load
// before the last one, so over one whole range at least.
type speedometer struct {
	issued     int64 // so far
	prev, last reading
}

type reading struct {
	at     time.Time
	issued int64
}

// mark notes that a range has been loaded now.
func (s *speedometer) mark(now time.Time) { s.prev, s.last = s.last, reading{now, s.issued} }

// at returns the speed in IDs per second.
func (s *speedometer) at(now time.Time) float64 {
	if d := now.Sub(s.prev.at).Seconds(); d > 0 {
		return float64(s.issued-s.prev.issued) / d
	}
	return 0
}
