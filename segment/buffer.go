package segment

import (
	"cmp"
	"errors"
	"math"
	"sync"
	"time"
)

// A buffer serves one tag: it guards the tag's supply with a lock, answers requests from the supply, and starts a load
// when one is due. Usually it is Leaf's double buffer: a current range, and a next range, which is loaded once a tenth
// of the current range is used. Where two ranges would not last as long as a load takes, the buffer holds more: see
// [supply].
//
// The stock, the ranges in memory, is open while no request waits: requests take IDs from it without the lock. As
// soon as a request waits, the stock is shut, and every request takes the lock. So no request overtakes it.
//
// At most one load of a tag is under way. Each request that takes the lock checks whether a load is due. So the next
// request retries a failed load.
//
// Answers are delivered after the lock is released. Lock order: mu, then the locks of the set and of the source.
type buffer struct {
	tag string
	set *tagSet

	mu       sync.Mutex
	supply   supply        // guarded by mu, except for the open run of its stock
	unlisted bool          // the store's last list of tags lacked it, and no load has found it since
	changes  uint32        // number of announced changes of the tag
	discards uint32        // number of times that the IDs in memory were discarded
	vouched  time.Duration // when a load or an announcement last confirmed that the tag exists
	news     time.Duration // when an announcement last brought the tag's rules; 0 for never
}

func newBuffer(s *tagSet, tag string) *buffer {
	return &buffer{tag: tag, set: s, supply: newSupply(&s.rule, s.clock.now())}
}

// next appends n IDs to dst, or returns ErrWait and takes no ID.
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

// nextSlowly serves a request under the lock, if the run, which needs no lock, has fewer than n IDs.
func (b *buffer) nextSlowly(n int64, dst []Range) ([]Range, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	//mutant:sealed
	if b.supply.waiters.any() || b.supply.closed || b.supply.stock.sealed || b.supply.stock.held() < n {
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

// look shuts the run, the IDs to take without the lock, if it is used up, and starts a load if one is due. A
// request calls look after it took the ID run.check or a later ID.
func (b *buffer) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.supply.stock.shutIfUsedUp()
	b.tendLocked()
}

// tendLocked establishes what holds whenever the lock is free: the stock is open unless a request waits, and a load
// is under way if one is due. First it sets run.check, the ID at which a request calls look. So a request that
// arrives before the decision about a load is counted in the decision, or calls look itself.
func (b *buffer) tendLocked() {
	now := b.set.clock.now()
	b.supply.settle(now)
	if b.supply.loader.running || !b.supply.due(now) {
		return
	}
	b.supply.loader.running = b.set.source.start(b)
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
			b.stopLocked(why, false) // the buffer was created for this request alone
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

// refusesLocked returns why the buffer refuses to park a request, or nil.
func (b *buffer) refusesLocked() error {
	switch {
	case b.supply.closed:
		return errGone
	case b.set.source.elsewhere.Load():
		return ErrElsewhere
	case b.supply.waiters.len() >= b.set.cfg.MaxWaiting:
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
	b.mu.Unlock()
	deliver(answers)
}

// close refuses all requests, waiting and future ones.
func (b *buffer) close() {
	b.mu.Lock()
	b.supply.closed = true
	b.supply.stock.shut()
	answers := b.supply.waiters.refuse(&b.supply.stock, ErrClosed)
	b.mu.Unlock()
	deliver(answers)
}

// plan describes the next load. The goroutine that loads repeats plan, the load, and takeIn, for as long as more
// returns true.
func (b *buffer) plan() plan {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.set.clock.now()
	p := plan{
		tag: b.tag, n: b.supply.plan(now), floor: b.supply.stock.floor,
		made: now, fails: b.supply.loader.fails, changes: b.changes, discards: b.discards, unlisted: b.unlisted,
		isStrict: b.supply.isStrict, of: b,
	}
	if p.isStrict {
		p.n = b.supply.waiters.demand()
	}
	return p
}

// takeIn processes the outcome of a load, answers waiting requests, and returns the pause before the next load.
//
// If the store refuses a tag, and a change of the tag was announced while the load was under way, the load is repeated:
// the refusal may be older than the change.
func (b *buffer) takeIn(p plan, l Loaded, err error) (pause time.Duration) {
	b.mu.Lock()
	now := b.set.clock.now()
	var answers []answer
	switch {
	case err == nil:
		b.addLocked(p, l, now)
		answers = b.supply.serve(now)
		b.supply.trim()
	case errors.Is(err, errNobody): // the next waiting request starts another load
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

func (b *buffer) addLocked(p plan, l Loaded, now time.Duration) {
	b.vouched = now
	if b.unlisted {
		b.unlisted = false
		b.set.found(b.tag, now)
	}
	b.supply.loader.succeeded(now - p.made)
	if !l.Passed {
		b.supply.era, b.supply.isRuled = l.Era, true
	}
	if p.changes == b.changes {
		b.supply.pace.configure(l.Step, b.set.rule)
		if !l.Passed {
			b.obey(l.Rules)
		}
	}
	b.supply.stock.drop(l.Least, now)
	b.supply.stock.add(l.Range, now)
	b.dropPast(now)
	if p.discards != b.discards || b.supply.closed {
		b.supply.stock.discard(now) // the load began before the memory was discarded
	}
}

func (b *buffer) join() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.supply.join()
}

func (b *buffer) hasWaiters() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.supply.waiters.any()
}

// seal records that the tag is strict, as load l has found, which reserved nothing. It discards the IDs in memory;
// there are some only if an operator replaced a loose tag of the same name.
func (b *buffer) seal(l Loaded) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.supply
	s.isStrict, s.stock.sealed = true, true
	s.era, s.isRuled = l.Era, true
	s.stock.discard(b.set.clock.now())
	b.obey(l.Rules)
}

// obey adopts new rules of the tag, and reports whether it discarded IDs in memory; the lock is held.
func (b *buffer) obey(r Rules) bool {
	if r == *b.supply.ruled() {
		return false
	}
	rules := r // only rules that change are on the heap
	b.supply.rules.Store(&rules)
	if r.Period != "" {
		b.set.addPeriod(b)
	}
	return b.supply.trim()
}

// dropPast discards IDs in memory whose period is past, such as those that a slow load has just added. The lock is
// held.
func (b *buffer) dropPast(monotonic time.Duration) {
	s := &b.supply
	if s.ruled().Period == "" || s.isStrict {
		return
	}
	now, _ := b.set.cfg.Clock()
	s.stock.cut(s.ruled().Begins(now), monotonic)
}

// refusedLocked processes the store's refusal of the tag, and refuses waiting requests. If the stock is empty, it
// removes the buffer and caches the refusal, so that further requests do not reach the store each time. A deleted tag
// is removed even if the stock has IDs. If the tag is missing but was not deleted, the store may have lost it: IDs in
// memory remain valid.
func (b *buffer) refusedLocked(err error, now time.Duration) (answers []answer) {
	b.supply.loader.refused(now)
	if b.supply.closed {
		return nil
	}
	lasting := errors.Is(err, ErrUnknownTag) || errors.Is(err, ErrBadRow) // the refusal holds for any number of IDs
	if errors.Is(err, ErrDisabled) || lasting && b.supply.stock.held() == 0 {
		b.set.names.refuse(b.tag, err, now)
		return b.stopLocked(err, errors.Is(err, ErrDisabled))
	}
	if errors.Is(err, ErrExhausted) {
		e, _ := errors.AsType[*ExhaustedError](err)
		e = cmp.Or(e, &ExhaustedError{Why: err})
		return b.supply.waiters.exhausted(&b.supply.stock, e.Left, e.Why)
	}
	return b.supply.waiters.refuse(&b.supply.stock, err)
}

// more reports whether another load follows a load that ended with err. If none follows and the tag never had a
// range, more removes the buffer, so that names of tags that do not exist cannot fill the memory.
func (b *buffer) more(err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.set.clock.now()
	b.supply.loader.running = b.supply.due(now) && (err == nil || b.supply.waiters.any())
	if b.supply.unused() {
		b.stopLocked(err, false) // no request waits
	}
	b.supply.setCheck(now)
	return b.supply.loader.running
}

// preload loads a first range and returns when that load has ended. It does nothing if a load has begun before.
func (b *buffer) preload() {
	b.mu.Lock()
	l := &b.supply.loader
	isIdle := !l.running && !b.supply.closed && l.loads == 0 && !b.supply.isStrict && b.set.source.begin()
	if isIdle {
		l.running = true
	}
	b.mu.Unlock()
	if isIdle {
		b.set.source.run(b)
	}
}

// see takes over the state t of the tag from a list of all tags that the store began at the time asOf. If asOf is
// the constant certain, the store returned t just now: refusals and rules of loads and lists that began before are
// ignored. see reports false if the buffer is closed.
func (b *buffer) see(t Tag, asOf time.Duration) (seen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.supply.closed {
		return false
	}
	now, isNews := b.set.clock.now(), asOf == certain
	if isNews {
		b.changes++
		b.vouched, b.news = now, now
		b.supply.loader.wake()
	}
	b.supply.pace.configure(t.Step, b.set.rule)
	if (b.news == 0 || b.news < asOf) && b.obey(t.Rules) {
		b.supply.settle(now)
	}
	if !isNews && t.Least <= b.supply.stock.least {
		return true
	}
	b.supply.stock.drop(t.Least, now)
	if b.supply.loader.loads > 0 { // a tag that never had a range needs none now
		b.tendLocked()
	}
	return true
}

// changed records that the tag was changed: a refusal by a load that began before is ignored.
func (b *buffer) changed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes++
}

// certain is passed as the time asOf for a state that is newer than all loads, changes and lists of tags.
const certain time.Duration = math.MaxInt64

// stop ends the issuing of IDs of the tag, and refuses waiting requests. asOf is when the list that lacked the tag
// began, or the constant certain. If the tag was loaded or changed since asOf, or its first load is under way, stop
// does nothing.
func (b *buffer) stop(why error, asOf time.Duration) {
	b.mu.Lock()
	var answers []answer
	if asOf == certain || b.supply.loader.loads > 0 && b.vouched < asOf {
		answers = b.stopLocked(why, true)
	}
	b.mu.Unlock()
	deliver(answers)
}

// stopLocked removes the buffer, discards the loaded IDs, and refuses waiting requests. The set keeps the floor,
// how far the tag was loaded, marked as live unless the tag is known to be deleted: a store that lacks a live tag
// may have lost the tag, and a repair writes it again.
func (b *buffer) stopLocked(why error, deleted bool) (answers []answer) {
	if b.supply.closed {
		return nil
	}
	floor := b.supply.floor()
	if deleted {
		floor = Floor{End: floor.End}
	}
	b.supply.closed = true
	b.supply.stock.discard(b.set.clock.now())
	b.set.forget(b, floor, b.unlisted)
	b.unlisted = false
	return b.supply.waiters.refuse(&b.supply.stock, why)
}

// dropIfIdle removes the buffer if no caller requested its tag for the duration idle. The loaded IDs become a hole.
//
// Law: the tag's floor, how far this process loaded the tag, is kept, and is at least the tag's least ID. So the
// next buffer of the tag loads above both, and the tag is not created again on first use.
func (b *buffer) dropIfIdle(idle time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.supply
	if s.closed || s.loader.running || s.waiters.any() || s.pace.speed.idle(b.set.clock.now(), s.asked()) < idle {
		return
	}
	b.stopLocked(nil, false) //mutant:rest-floor
}

// stats returns the figures of the tag.
func (b *buffer) stats() TagStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.supply.stats(b.set.clock.now())
	s.Tag = b.tag
	return s
}
