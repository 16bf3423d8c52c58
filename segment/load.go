package segment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A chain begins where what is held lasts less than lowWater loads, and is
// filled for highWater loads. So nobody waits for a load that takes twice as
// long as any of late, nor for the one after it: when it is there, two loads'
// worth are used up, and as much has come.
const (
	lowWater  = 2
	highWater = 4
)

// chainSteps bounds a chain: at most so many times the maximal step is held,
// whatever was measured. With loads of 0.5 s that carries 7 million IDs/s a
// tag, and it keeps one slow load or one burst from burning more.
const chainSteps = 10

// checkEvery is how often, at the present speed, requests look after the
// buffer, so that a speed that changes within a range is noticed.
const checkEvery = 250 * time.Millisecond

// quiet is how long a tag that the store refused is left alone while there are
// IDs for all who ask.
const quiet = time.Second

// dueLocked reports whether a load should be under way: somebody waits, or the
// next range is not there and a tenth of the current one is used, or what is
// held does not last as long as it must.
func (b *buffer) dueLocked(now time.Duration) bool {
	held := b.heldLocked()
	switch {
	case b.queue != nil:
		return true
	case b.gone || now < b.quietUntil:
		return false
	case held == 0:
		return true
	}
	// While somebody waits rest[0] is of the current range; nobody does here.
	return len(b.rest) == 0 && held <= b.size-b.size/10 || held < b.aheadLocked(now, lowWater)
}

// aheadLocked returns how many IDs are used in the time of so many loads, at
// the present speed, within what a chain may hold.
func (b *buffer) aheadLocked(now time.Duration, loads float64) int64 {
	need := b.speed.at(now, b.askedLocked()) * b.slowest.Seconds() * loads
	return min(count(need), chainSteps*min(MaxStep, max(b.a.cfg.MaxStep, b.configured)))
}

// setCheckLocked says when takers look after the buffer next: at the last ID,
// or when a load will be due, or when the speed should be measured again.
func (b *buffer) setCheckLocked(now time.Duration) {
	r := b.open.Load()
	if r == nil {
		return
	}
	next, check := r.next.Load(), r.end-1
	pace := max(16, count(b.speed.at(now, b.askedLocked())*checkEvery.Seconds()))
	if pace < r.end-next {
		check = next + pace
	}
	if !b.loading && now >= b.quietUntil {
		if len(b.rest) == 0 {
			check = min(check, b.first+max(0, b.size/10-1))
		}
		if low := b.aheadLocked(now, lowWater) - b.restLen; low > 0 {
			check = min(check, r.end-low)
		}
	}
	r.check.Store(check)
}

// load loads ranges until none is due. After a failure it pauses, and goes on
// only if somebody waits: otherwise the next request begins anew.
func (b *buffer) load() {
	for {
		p := b.plan()
		start := b.a.now()
		l, err := b.a.loadRange(b.tag, p)
		if pause := b.takeIn(l, err, p, start); !b.a.sleep(pause) || !b.loadOn(err) {
			return
		}
	}
}

// A plan is what a load is to bring, and what was known of the tag before it.
type plan struct {
	n, floor int64
	fails    int  // loads that failed in a row
	changes  int  // news of the tag
	stranger bool // no listing had it
}

// plan returns what to load: the step that follows from how long the last
// range lasted, or more where more is waited for or used up too soon.
func (b *buffer) plan() plan {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.a.now()
	b.paceLocked(now)
	if b.last.ids > 0 && !b.judged {
		b.step = b.a.rule.Next(b.step, b.configured, b.last.of(b.step))
		b.judged = true
	}
	lack := b.queue.demand() + b.aheadLocked(now, highWater) - b.heldLocked()
	return plan{max(b.step, lack), b.floor, b.fails, b.changes, b.stranger}
}

// takeIn books the outcome of a load that began at start, answers whom it can,
// and returns how long to pause before the next load.
//
// What the store refuses is asked again if somebody told meanwhile that the tag
// was changed: the answer may be older than the change.
func (b *buffer) takeIn(l Loaded, err error, p plan, start time.Duration) (pause time.Duration) {
	b.mu.Lock()
	now := b.a.now()
	b.lastErr = nil
	var answers []outcome
	switch {
	case err == nil:
		b.loadedLocked(l, p, start, now)
		answers = b.serveLocked(nil)
	case isFinal(err) && p.changes != b.changes:
		b.errs++
	case isFinal(err):
		answers = b.refusedLocked(err, now)
	default:
		b.lastErr = err
		b.errs++
		b.fails++
		pause = b.pauseLocked()
	}
	b.paceLocked(now)
	b.openLocked()
	b.setCheckLocked(now)
	b.mu.Unlock()
	deliver(answers)
	return pause
}

func (b *buffer) loadedLocked(l Loaded, p plan, start, now time.Duration) {
	b.vouched = now
	if b.stranger {
		b.stranger = false
		b.a.names.release()
		b.a.names.meet(b.tag, now)
	}
	b.loads++
	b.fails, b.retry, b.quietUntil = 0, nil, 0
	b.took = now - start
	b.slowest = max(b.took, b.slowest-b.slowest/8)
	if p.changes == b.changes {
		b.configureLocked(l.Step)
	}
	b.dropLocked(l.Least)
	b.addLocked(l.Range, now)
}

func (b *buffer) pauseLocked() time.Duration {
	if b.retry == nil {
		b.retry = backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(10*time.Millisecond),
			backoff.WithMaxInterval(250*time.Millisecond),
			backoff.WithMaxElapsedTime(0))
	}
	return b.retry.NextBackOff()
}

// loadOn reports whether another load follows one that ended with err. If
// not, a tag that never had a range is forgotten, lest names that do not
// exist fill the memory.
func (b *buffer) loadOn(err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.a.now()
	b.loading = b.queue != nil || err == nil && b.dueLocked(now)
	if !b.loading && b.loads == 0 && !b.gone {
		b.gone = true
		b.a.forget(b)
	}
	b.setCheckLocked(now)
	return b.loading
}

// isFinal reports whether a load failed for a reason that waiting cannot mend.
func isFinal(err error) bool {
	return errors.Is(err, ErrUnknownTag) || errors.Is(err, ErrExhausted) || errors.Is(err, ErrBadRow)
}

// isMissing reports whether a tag has never been made, and may be.
func isMissing(err error) bool {
	_, misnamed := errors.AsType[*NameError](err)
	return errors.Is(err, ErrUnknownTag) && !errors.Is(err, ErrDisabled) && !misnamed
}

// loadRange loads one range of a tag, in its turn.
func (a *Allocator) loadRange(tag string, p plan) (l Loaded, err error) {
	err = a.lanes.of(p).drive(a.ctx, a.cfg.LoadTimeout, func(ctx context.Context) (err error) {
		start := time.Now()
		l, err = a.loadOrMake(ctx, tag, p.n, p.floor)
		if err == nil && (l.Start < p.floor || l.Len() < max(p.n, 1) || l.Step < 1) {
			// A store that breaks its contract must not make us repeat an ID.
			err = fmt.Errorf("segment: the store gave [%d, %d) of step %d where %d IDs from %d were asked", l.Start, l.End, l.Step, p.n, p.floor)
		}
		a.cfg.OnLoad(tag, time.Since(start), err)
		return err
	})
	a.note(err)
	// Anybody may ask for a tag that is not there: that is not worth a line.
	if err != nil && !errors.Is(err, ErrUnknownTag) && a.ctx.Err() == nil {
		if silent, ok := a.failureLog.line(a.now()); ok {
			log := a.cfg.Log
			if silent > 0 {
				log = log.With("silent", silent) // failures since the last line
			}
			log.Warn("a load failed", "tag", tag, "ids", p.n, "error", err)
		}
	}
	return l, err
}

// errNotYet is the outcome of a load if the tag is being made by somebody else
// at this moment: a store of several servers may refuse to make it twice before
// it shows it. Another load will find it.
var errNotYet = errors.New("segment: the tag was made just now, and cannot be read yet")

// makes reports whether a tag is made on first use.
func (a *Allocator) makes(tag string) bool { return a.cfg.AutoStep > 0 && a.cfg.AutoMake(tag) }

// loadOrMake loads a range, making the tag first if it is unknown and that is
// wanted. A tag that was there and is not any more has lost its mark. Made anew
// it would repeat what other allocators have loaded: its operator must say
// where it goes on.
func (a *Allocator) loadOrMake(ctx context.Context, tag string, n, floor int64) (Loaded, error) {
	l, err := a.cfg.Store.Load(ctx, tag, n, floor)
	if !a.makes(tag) || floor > 0 || !isMissing(err) {
		return l, err
	}
	_, err = a.cfg.Store.Create(ctx, Tag{Name: tag, Step: a.cfg.AutoStep, MaxID: 1}, false)
	if err != nil && !errors.Is(err, ErrExists) {
		return l, err
	}
	if err == nil {
		a.cfg.OnMake(tag)
	}
	if l, err = a.cfg.Store.Load(ctx, tag, n, floor); isMissing(err) {
		err = errNotYet
	}
	return l, err
}
