package segment

import (
	"errors"
	"slices"
	"time"
)

// dropLocked throws away what is loaded below least. Whatever of the current
// range has not been taken by then is taken back first, so:
//
// Law: no request that begins after dropLocked has returned gets an ID below
// least. A load that is under way may still bring IDs below it; they are thrown
// away when they come, since least only rises.
//
// What is thrown away is a hole. It counts neither as used nor as asked for: it
// tells nothing of the speed.
func (b *buffer) dropLocked(least int64) {
	if least <= b.least {
		return
	}
	b.least, b.floor = least, max(b.floor, least)
	b.shutLocked()
	before := b.restLen
	for len(b.rest) > 0 && b.rest[0].Start < least {
		cut := min(b.rest[0].End, least) - b.rest[0].Start
		b.rest[0].Start += cut
		b.restLen -= cut
		if b.rest[0].Len() == 0 {
			b.rest = slices.Delete(b.rest, 0, 1)
		}
	}
	if dropped := before - b.restLen; dropped > 0 {
		b.loaded -= dropped
		b.first, b.size, b.began = 0, 0, b.a.now()
		if len(b.rest) > 0 {
			b.first, b.size = b.rest[0].Start, b.rest[0].Len()
		}
	}
}

// stopLocked makes the tag serve nobody any more, and returns whom to tell why.
// What it has loaded is thrown away, and its memory with it but for the floor.
func (b *buffer) stopLocked(why error) (answers []outcome) {
	if b.gone {
		return nil
	}
	b.gone = true
	b.shutLocked()
	b.rest, b.restLen = nil, 0
	answers = b.refuseLocked(why)
	b.a.forget(b)
	return answers
}

func (b *buffer) stop(why error) {
	b.mu.Lock()
	answers := b.stopLocked(why)
	b.mu.Unlock()
	deliver(answers)
}

// stopUnlessFound is stop for the word of a listing that began at that time. It
// does not count against that of a load since, or of somebody who told, or of the
// first load, which is under way.
func (b *buffer) stopUnlessFound(why error, began time.Duration) {
	b.mu.Lock()
	var answers []outcome
	if b.loads > 0 && b.vouched < began {
		answers = b.stopLocked(why)
	}
	b.mu.Unlock()
	deliver(answers)
}

// see takes over how the tag stands. told says that this is news: what loads
// that began before say against it does not count.
func (b *buffer) see(t Tag, told bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return
	}
	if told {
		b.changes++
		b.quietUntil, b.vouched = 0, b.a.now()
	}
	if t.Least > b.least || told {
		b.dropLocked(t.Least)
		b.configureLocked(t.Step)
		b.tendIfUsedLocked()
		return
	}
	b.configureLocked(t.Step)
}

// tendIfUsedLocked is tendLocked but for a tag that never had a range: nobody
// need load one.
func (b *buffer) tendIfUsedLocked() {
	if b.loads > 0 {
		b.tendLocked()
	}
}

// configureLocked takes over the tag's own step: it counts from the next load
// on. One that was lowered counts as after a start, whatever it had grown to.
func (b *buffer) configureLocked(step int64) {
	switch {
	case step < 1 || step == b.configured:
	case step < b.configured:
		b.configured, b.step = step, step
	default:
		b.configured, b.step = step, b.a.rule.clamp(b.step, step)
	}
}

// refusedLocked books the word of the store that it does not serve the tag, and
// returns whom to tell. That is remembered for a while if nothing of the tag is
// left, so that who asks on does not reach the store each time; a deleted tag is
// stopped whatever is left. One that is just not there,
// though it was, may be in a store that lost its memory: what was loaded of it
// is as good as before.
func (b *buffer) refusedLocked(err error, now time.Duration) (answers []outcome) {
	b.errs++
	b.fails, b.retry, b.quietUntil = 0, nil, now+quiet
	if b.gone {
		return nil
	}
	lasting := errors.Is(err, ErrUnknownTag) || errors.Is(err, ErrBadRow) // whatever n is asked for
	if errors.Is(err, ErrDisabled) || lasting && b.heldLocked() == 0 {
		b.a.names.refuse(b.tag, err, now)
		return b.stopLocked(err)
	}
	return b.refuseLocked(err)
}
