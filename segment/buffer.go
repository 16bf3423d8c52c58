package segment

import (
	"errors"
	"math"
	"sync"
	"time"
)

// A buffer serves one tag: it guards the tag's supply with a lock, answers requests from it, and starts a load when one
// is due. At rest it is Leaf's double buffer: a current range, and the next one, loaded once a tenth of the current one
// is used. Where that would not last as long as a load takes, it becomes a chain: see [supply].
//
// The stock is open while no request waits: requests take IDs from it without the lock. As soon as one waits it is
// shut, and every request comes to the lock: so no request overtakes one that waits.
//
// At most one load of a tag is under way. Requests see whether one is due, so the next request retries a failed load.
//
// Answers are delivered after the lock is free. Lock order: mu, then the locks of the owner and of the source.
type buffer struct {
	tag  string
	deps *deps

	mu       sync.Mutex
	supply   supply        // guarded by mu, but for the open run of its stock
	unlisted bool          // the last listing did not have the tag, and no load has found it yet
	changes  uint32        // number of news about the tag
	discards uint32        // how often the memory of the tag was discarded
	vouched  time.Duration // when a load or news last said that the tag exists
}

// deps is what all buffers of an allocator share.
type deps struct {
	clock      clock
	rule       stepRule
	maxWaiting int // bounds the parked requests of one tag
	source     *source
	owner      owner
	discarded  func(tag string, r Range) // see [Config.Discarded]
}

// An owner holds buffers. A buffer calls it, which is a call upwards, with its own lock held.
type owner interface {
	// found says that a load found a tag that was not listed.
	found(tag string, now time.Duration)
	// refuse says that the store does not serve the tag.
	refuse(tag string, err error, now time.Duration)
	// forget removes a buffer that is gone, and keeps what its loads say of the tag.
	forget(b *buffer, floor Floor, unlisted bool)
}

var _ consumer = (*buffer)(nil)

func newBuffer(d *deps, tag string) *buffer {
	return &buffer{tag: tag, deps: d, supply: newSupply(&d.rule, d.clock.now())}
}

// next appends n IDs to dst, or returns ErrWait and takes none.
func (b *buffer) next(n int64, dst []Range) ([]Range, error) {
	if r := b.supply.stock.run.Load(); r != nil {
		if got, ok := r.take(n); ok {
			if got.End > r.check.Load() {
				b.look()
			}
			return append(dst, got), nil
		}
	}
	return b.nextSlowly(n, dst)
}

// nextSlowly is next for requests that the open run alone cannot serve.
func (b *buffer) nextSlowly(n int64, dst []Range) ([]Range, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	//mutant:sealed
	if b.supply.waiters.any() || b.supply.gone || b.supply.stock.sealed || b.supply.stock.held() < n {
		return dst, ErrWait
	}
	b.supply.stock.shut()
	err := ErrWait
	if b.supply.stock.restLen >= n { // lock-free requests may have been faster
		dst, err = b.supply.stock.take(n, dst), nil
	}
	b.tendLocked()
	return dst, err
}

// look does what is due after IDs were taken from the open run.
func (b *buffer) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.supply.stock.shutIfUsedUp()
	b.tendLocked()
}

// tendLocked leaves the buffer as it must be whenever the lock is free: open unless a request waits, and with a load
// under way if one is due. The check of the run is set before it is decided whether a load is due: a request in between
// is seen by this call, or sees the check.
func (b *buffer) tendLocked() {
	now := b.deps.clock.now()
	b.supply.settle(now)
	if b.supply.loader.running || !b.supply.due(now) {
		return
	}
	b.supply.loader.running = b.deps.source.start(b)
	b.supply.setCheck(now)
}

// errGone is returned by park when the buffer was stopped or closed.
var errGone = errors.New("segment: the buffer is gone")

// park queues a request and makes sure that a load is under way.
func (b *buffer) park(w waiter) error {
	b.mu.Lock()
	if why := b.refusesLocked(); why != nil {
		defer b.mu.Unlock()
		if b.supply.unused() {
			b.stopLocked(why, false) // it was made for this request
		}
		return why
	}
	b.supply.stock.shut()
	b.supply.waiters.push(w, b.supply.loader.failing(), b.expire)
	// A load may have ended since next returned ErrWait.
	answers := b.supply.waiters.serve(&b.supply.stock, nil)
	b.tendLocked()
	b.mu.Unlock()
	deliver(answers)
	return nil
}

// refusesLocked returns why no request may wait, or nil.
func (b *buffer) refusesLocked() error {
	switch {
	case b.supply.gone:
		return errGone
	case b.deps.source.elsewhere.Load():
		return ErrElsewhere
	case b.supply.waiters.len() >= b.deps.maxWaiting:
		return ErrTooMany
	}
	return nil
}

// expire refuses the requests that have waited for long enough.
func (b *buffer) expire() {
	b.mu.Lock()
	l := &b.supply.loader
	answers := b.supply.waiters.expire(&b.supply.stock, time.Now(), l.failing(), l.notLoaded())
	b.tendLocked()
	if b.supply.unused() {
		b.stopLocked(nil, false) // its order was in doubt, and so it was not loaded
	}
	b.mu.Unlock()
	deliver(answers)
}

// close refuses all requests, waiting and future ones.
func (b *buffer) close() {
	b.mu.Lock()
	b.supply.gone = true
	b.supply.stock.shut()
	answers := b.supply.waiters.refuse(&b.supply.stock, ErrClosed)
	b.mu.Unlock()
	deliver(answers)
}

// plan implements [consumer]: it returns what to load next.
func (b *buffer) plan() plan {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.deps.clock.now()
	p := plan{
		tag: b.tag, n: b.supply.plan(now), floor: b.supply.stock.floor,
		made: now, fails: b.supply.loader.fails, changes: b.changes, discards: b.discards, unlisted: b.unlisted,
		again: b.supply.loader.excused,
	}
	if b.supply.order != loose {
		p.n, p.join, p.waited = b.supply.waiters.demand(), b.join, b.waited
	}
	return p
}

// takeIn implements [consumer]: it takes in the outcome of a load, answers waiting requests, and returns how long to
// pause before the next load.
//
// A tag that the store refuses is loaded again if news about it arrived meanwhile: the refusal may be older.
func (b *buffer) takeIn(p plan, l Loaded, err error) (pause time.Duration) {
	b.mu.Lock()
	now := b.deps.clock.now()
	var answers []answer
	switch {
	case err == nil:
		holes := b.addLocked(p, l, now)
		var left []Range
		answers, left = b.supply.serve(now)
		if !l.Passed { // who loaded it has counted it as issued
			b.lost(append(holes, left...))
		}
	case errors.Is(err, errNobody): // another follows as soon as a request waits
	case IsFinal(err) && p.changes != b.changes:
		b.supply.loader.outdated()
	case IsFinal(err):
		answers = b.refusedLocked(err, now)
	default:
		pause = b.supply.loader.failed(err)
		b.supply.waiters.setExpiry(b.supply.loader.failing())
	}
	b.supply.settle(now)
	b.mu.Unlock()
	deliver(answers)
	return pause
}

// addLocked adds a loaded range to the stock, and returns what became holes.
func (b *buffer) addLocked(p plan, l Loaded, now time.Duration) (holes []Range) {
	b.vouched = now
	if b.unlisted {
		b.unlisted = false
		b.deps.owner.found(b.tag, now)
	}
	b.supply.loader.succeeded(now - p.made)
	if p.changes == b.changes {
		b.supply.pace.configure(l.Step, b.deps.rule)
	}
	holes = b.supply.stock.drop(l.Least, now)
	if hole := b.supply.stock.add(l.Range, now); hole.Len() > 0 {
		holes = append(holes, hole)
	}
	if p.discards != b.discards || b.supply.gone {
		holes = append(holes, b.supply.stock.discard(now)...) // loaded before
	}
	return holes
}

// lost reports what was loaded and is issued by none.
func (b *buffer) lost(holes []Range) {
	for _, r := range holes {
		b.deps.discarded(b.tag, r)
	}
}

// refusedLocked takes in that the store does not serve the tag, and refuses waiting requests. The refusal is cached if
// no ID of the tag is left, so that further requests do not reach the store each time. A deleted tag is stopped
// whatever is left. A tag that has merely vanished may be in a store that lost its memory: the IDs loaded from it
// remain valid.
func (b *buffer) refusedLocked(err error, now time.Duration) (answers []answer) {
	b.supply.loader.refused(now)
	if b.supply.gone {
		return nil
	}
	lasting := errors.Is(err, ErrUnknownTag) || errors.Is(err, ErrBadRow) // for any number of IDs
	if errors.Is(err, ErrDisabled) || lasting && b.supply.stock.held() == 0 {
		b.deps.owner.refuse(b.tag, err, now)
		return b.stopLocked(err, errors.Is(err, ErrDisabled))
	}
	return b.supply.waiters.refuse(&b.supply.stock, err)
}

// more implements [consumer]: it reports whether another load follows one that ended with err. If not, a tag that never
// had a range is forgotten, so that names that do not exist cannot fill the memory.
func (b *buffer) more(err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.deps.clock.now()
	b.supply.loader.running = b.supply.due(now) && (err == nil || b.supply.waiters.any())
	if b.supply.unused() {
		b.stopLocked(err, false) // no request waits
	}
	b.supply.setCheck(now)
	return b.supply.loader.running
}

// preload loads a first range, unless a load has begun, and returns when that has ended.
func (b *buffer) preload() {
	b.mu.Lock()
	idle := !b.supply.loader.running && !b.supply.gone && b.supply.loader.loads == 0 && b.supply.order == loose
	if idle {
		b.supply.loader.running = true
	}
	b.mu.Unlock()
	if idle {
		b.deps.source.runHere(b)
	}
}

// see takes over the state of the tag as the store returned it. news says that the tag was changed just now: a refusal
// by a load or listing that began before does not count. It reports false if the buffer is gone.
func (b *buffer) see(t Tag, news bool) (seen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.supply.gone {
		return false
	}
	now := b.deps.clock.now()
	if news {
		b.changes++
		b.vouched = now
		b.supply.loader.wake()
	}
	b.supply.pace.configure(t.Step, b.deps.rule)
	if !news && t.Least <= b.supply.stock.least {
		return true
	}
	b.lost(b.supply.stock.drop(t.Least, now))
	if b.supply.loader.loads > 0 { // a tag that never had a range needs none now
		b.tendLocked()
	}
	return true
}

// changed notes that the tag was changed: a refusal by a load that began before does not count.
func (b *buffer) changed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes++
}

// certain, as the time of a statement about a tag, says that nothing outweighs the statement.
const certain time.Duration = math.MaxInt64

// stop ends the issuing of IDs of the tag, and refuses waiting requests. asOf is when the deciding listing began:
// a load or news since then outweighs it, and so does a first load under way.
func (b *buffer) stop(why error, asOf time.Duration) {
	b.mu.Lock()
	var answers []answer
	if asOf == certain || b.supply.loader.loads > 0 && b.vouched < asOf {
		answers = b.stopLocked(why, true)
	}
	b.mu.Unlock()
	deliver(answers)
}

// stopLocked is stop for a caller that holds the lock. A tag is live until it is known to be deleted: one that the
// store does not have at the moment may be in a store that lost its memory, whose repair must serve it on.
func (b *buffer) stopLocked(why error, deleted bool) (answers []answer) {
	if b.supply.gone {
		return nil
	}
	floor := b.floorLocked()
	if deleted {
		floor = Floor{End: floor.End}
	}
	b.leaveLocked(floor)
	return b.supply.waiters.refuse(&b.supply.stock, why)
}

// leaveLocked removes the buffer. The loaded IDs are discarded; only the tag's floor remains.
func (b *buffer) leaveLocked(floor Floor) {
	b.supply.gone = true
	b.lost(b.supply.stock.clear())
	b.deps.owner.forget(b, floor, b.unlisted)
	b.unlisted = false
}

// rest removes the buffer if its tag was not requested for as long as idle. What is loaded becomes a hole.
//
// Law: the floor stays, with all that a repair of the marks takes from the buffer, and is at least the tag's least ID.
// So the next buffer of the tag loads above both, and the tag is not created on first use.
func (b *buffer) rest(idle time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.supply
	if s.gone || s.loader.running || s.waiters.any() || s.pace.speed.idle(b.deps.clock.now(), s.asked()) < idle {
		return
	}
	b.leaveLocked(b.floorLocked()) //mutant:rest-floor
}

// stats returns the figures of the tag.
func (b *buffer) stats() TagStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.supply.stats(b.deps.clock.now())
	s.Tag = b.tag
	return s
}
