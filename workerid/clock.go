package workerid

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A clock compares this machine's wall clock with its monotonic clock, and with
// the clocks of the registry and the other workers. Clocks decide nothing about
// uniqueness: windows do. A clock keeps IDs true to time, and keeps a wrong
// reading from moving a window years ahead. Only the goroutine of Keeper.Run
// uses it.
//
// It is compared before the first write of a search, at each third heartbeat and before
// each renewal, and at once after a step beyond the tolerance, or back by the
// deadline. The offset is the wall clock minus the registry's, whose clock also dates
// the heartbeats. The wall clock is read before and after, and the offset lies between
// both differences.
//
//   - The offset must be within the tolerance of the median of all offsets, where
//     the registry is one voice, with 0: two workers alone cannot know which of
//     them is wrong, three voices can.
//   - Of an even number of voices either one in the middle will do. Their mean is
//     not the time of any clock: that of 0 and 24 h would refuse both, and let a
//     clock pass that is 12 h off.
//   - The tolerance is MaxClockSkew, at least 1 s: a call takes a while, and
//     heartbeats are dated when they arrive. A slow network is not a wrong clock.
//   - The others' offsets are a list of all heartbeats. It is read now and then,
//     and before a clock is refused. While it cannot be read, a clock that was not
//     set, and agrees with the last list or with the registry's clock alone, is
//     right: heartbeats stop nobody.
//   - A clock that was found right, and was not set since, may fail maxDoubts
//     comparisons in a row: when the registry's clock is set, heartbeats put
//     before that still vouch for its old time, and every worker would be refused.
//   - A step within MaxAhead, or within one tick, needs no comparison: the
//     generator copes with it. After a step beyond the tolerance nothing is issued
//     until the clock was compared, so for as long as the registry is out of reach.
//
// What follows for a running worker:
//
//	set back, within the tolerance     continues; requests wait, or as in the last row
//	set ahead, within the tolerance    continues
//	set beyond it, and right now       issues nothing until compared
//	set beyond it, and wrong           issues, renews and reports nothing until it is right
//	drifts away                        the same from the fourth failed comparison on
//	the registry's clock is set        continues if the next heartbeats of others show it
//	right, but a deadline or more      waits, or acquires another number (behindPolicy)
//	behind the last ID
type clock struct {
	now       func() int64 // wall clock, Unix ms
	registry  timeSource
	self      string // this worker's instance, whose heartbeats do not count
	tolerance int64  // how far the clock may be from the others', ms
	slack     int64  // a step of up to this many ms is none
	onStep    func(step time.Duration)

	born   time.Time // origin of the monotonic time
	lead   int64     // of the wall clock over the monotonic one, ms, as last seen
	proven bool      // found right, and not set since
	doubts int       // comparisons in a row that failed though it was not set
	others []int64   // offsets of the other workers, ms
	unread error     // why others could not be read last; nil if it was
	due    time.Time // when others is to be read again
	again  time.Time // until then it is not, unless the clock disagrees with it
	soon   time.Time // until then it is not, whatever happens
	failed int       // readings of it that failed in a row
	apart  int       // readings of it in a row with which the clock disagreed
	far    int       // readings of it that a far step still asks for, 2 at first
	rand   *rand.Rand
}

// A timeSource is what a clock asks of a [Registry].
type timeSource interface {
	Time(ctx context.Context) (ms int64, err error)
	Heartbeats(ctx context.Context) (map[int]Heartbeat, error)
}

// A reading is the wall clock as it was compared. What is written with it is
// true even if the process stood still, or the clock was set, since.
type reading struct {
	now    int64         // Unix ms
	at     time.Time     // when the comparison ended, for its monotonic reading
	offset time.Duration // from the registry's clock
}

// elapsed returns what the wall clock shows if it was not set since, Unix ms.
func (r reading) elapsed() int64 { return r.now + time.Since(r.at).Milliseconds() }

const (
	// othersAge is how old the list of the others' offsets becomes: each worker of a
	// fleet reads the heartbeats of all. It is read sooner after a step of the clock
	// beyond the tolerance, which may be that of the registry, too: at once, and
	// againSoon later, when the others' heartbeats show it.
	othersAge = 5 * time.Minute
	againSoon = 10 * time.Second
	// After a list that failed, or that a clock disagreed with, the next one waits
	// for minPause, less than a heartbeat, and twice as long each time, up to
	// maxFailed, or up to maxApart for a clock that disagrees with the last list: if it
	// is right again, only a new list shows that.
	minPause  = 1500 * time.Millisecond
	maxFailed = time.Minute
	maxApart  = 15 * time.Second
	// precision is how far apart two clocks may be that cannot be compared better.
	precision = time.Second
	// maxDoubts is how many comparisons in a row may fail for a clock that was
	// not set.
	maxDoubts = 3
	// maxWait is the longest that a worker waits for its clock to catch up. A
	// clock that once was years ahead must not lock its worker out for years.
	maxWait = 24 * time.Hour
)

// start begins to watch for steps.
func (c *clock) start() {
	c.born = time.Now()
	c.lead, _ = c.leads()
}

// leads returns by how much the wall clock leads the monotonic one, and the
// error of that: the time between two readings, in which the process may have
// been off its CPU. Both in ms.
func (c *clock) leads() (lead, inexact int64) {
	for range 3 {
		before := time.Since(c.born).Milliseconds()
		lead = c.now() - before
		if inexact = time.Since(c.born).Milliseconds() - before; inexact <= 1 {
			break
		}
	}
	return lead, inexact
}

// stepped returns by how many ms the clock was set since the last call, 0 if it
// was not, and calls onStep if it was. The clock has to prove itself again then.
func (c *clock) stepped() (step int64) {
	lead, inexact := c.leads()
	if step = lead - c.lead; max(step, -step) > c.slack+inexact {
		if c.lead, c.proven = lead, false; max(step, -step) > c.tolerance {
			c.far = 2
		}
		c.onStep(time.Duration(step) * time.Millisecond)
		return step
	}
	if inexact <= 1 {
		c.lead = lead // drift is not a step
	}
	return 0
}

// still returns what r, a reading of before, is now if the clock was found right, with no
// doubt left, and was not set since.
func (c *clock) still(r reading) (now reading, ok bool) {
	ok = c.stepped() == 0 && c.proven && c.doubts == 0 && c.far == 0
	at := time.Now()
	return reading{now: c.lead + at.Sub(c.born).Milliseconds(), at: at, offset: r.offset}, ok
}

// setFar reports whether the clock was set beyond the tolerance since the last call
// of stepped, or back by the deadline or more: then callers wait for it in vain.
func (c *clock) setFar(deadline time.Duration) bool {
	step := c.stepped()
	return max(step, -step) > c.tolerance || step < 0 && -step >= deadline.Milliseconds()
}

// compare compares the clock with the others'. The error wraps errClock, with
// the offset in the reading, if the clock is wrong; any other error means that
// it could not be compared.
func (c *clock) compare(ctx context.Context) (reading, error) {
	r, _, err := c.judge(ctx, false)
	return r, err
}

// compareAnew is compare, with the others as they are now: it returns their
// heartbeats.
func (c *clock) compareAnew(ctx context.Context) (reading, map[int]Heartbeat, error) {
	return c.judge(ctx, true)
}

func (c *clock) judge(ctx context.Context, anew bool) (r reading, beats map[int]Heartbeat, err error) {
	c.stepped()
	early, late, now, err := c.bounds(ctx)
	if err != nil {
		return reading{}, nil, err
	}
	agreed := c.agree(early, late)
	if anew || !agreed && time.Now().After(c.soon) || c.far == 2 && time.Now().After(c.again) {
		if beats, err = c.readOthers(ctx); err != nil {
			return reading{}, nil, err
		}
		agreed = c.agree(early, late)
	}
	if c.stepped() != 0 {
		return reading{}, nil, errors.New("workerid: the clock was set while it was compared")
	}
	r = reading{now: now, at: time.Now(), offset: time.Duration(early+late) / 2 * time.Millisecond}
	switch {
	case agreed: //mutant:clock-agrees
		c.proven, c.doubts, c.apart = true, 0, 0
		return r, beats, nil
	case c.unread != nil:
		return reading{}, nil, c.unread
	case beats != nil:
		c.apart++
		c.soon = c.after(c.apart, maxApart)
		c.again = c.soon
	}
	if c.proven && c.doubts < maxDoubts {
		c.doubts++
		return r, beats, nil
	}
	low, high := c.median()
	return reading{offset: r.offset}, nil, fmt.Errorf("%w: its offset from the registry's clock is %v, "+
		"the median of all offsets is %v to %v, and they may differ by %v at most (--max-clock-skew, at least 1s): "+
		"set this machine's clock",
		errClock, r.offset, time.Duration(low)*time.Millisecond, time.Duration(high)*time.Millisecond,
		time.Duration(c.tolerance)*time.Millisecond)
}

// bounds returns the bounds of the clock's offset, in ms, and the reading of the
// clock that the offset belongs to.
func (c *clock) bounds(ctx context.Context) (early, late, now int64, err error) {
	for range 3 {
		before := c.now()
		at, err := c.registryTime(ctx)
		if err != nil {
			return 0, 0, 0, err
		}
		now = c.now()
		early, late = before-at, now-at
		// The registry read its clock in between. Bounds in the wrong order, or farther
		// apart than a call may take, mean that the clock was set.
		if width := late - early; 0 <= width && width <= callTimeout.Milliseconds() {
			// Both ways of a slow call take about as long.
			spare := max(0, width-precision.Milliseconds()) / 2
			return early + spare, late - spare, now, nil
		}
	}
	return 0, 0, 0, errors.New("workerid: the registry is too slow for its time to be compared")
}

func (c *clock) registryTime(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.registry.Time(ctx)
}

// refresh reads the others' offsets if that is due. It is no part of a heartbeat:
// if it fails, the last list will do for a while.
func (c *clock) refresh(ctx context.Context) {
	if time.Now().After(c.due) && time.Now().After(c.again) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout) // the next heartbeat waits
		defer cancel()
		_, _ = c.readOthers(ctx) // c.unread
	}
}

// readOthers reads the heartbeats of the live workers, and so their offsets.
func (c *clock) readOthers(ctx context.Context) (map[int]Heartbeat, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	beats, err := c.registry.Heartbeats(ctx)
	if c.unread = err; err != nil {
		c.failed++
		c.soon, c.again = c.after(c.failed, maxApart), c.after(c.failed, maxFailed)
		return nil, err
	}
	c.others, c.failed = c.others[:0], 0
	for _, h := range beats {
		if h.Time != 0 && h.Instance != c.self {
			c.others = append(c.others, h.Offset().Milliseconds())
		}
	}
	age := othersAge
	if c.far = max(0, c.far-1); c.far > 0 {
		age = againSoon
	}
	c.due = time.Now().Add(c.about(age))
	return beats, nil
}

// after returns when the others may be read again, after so many readings in a row
// that did not help.
func (c *clock) after(times int, most time.Duration) time.Time {
	return time.Now().Add(c.about(min(minPause<<min(times-1, 16), most)))
}

// about returns a random time of half to one and a half of d, so that the workers
// of a fleet do not ask at once.
func (c *clock) about(d time.Duration) time.Duration {
	return d/2 + time.Duration(c.rand.Int64N(int64(d)))
}

// agree reports whether an offset between early and late is within the
// tolerance of the median.
func (c *clock) agree(early, late int64) bool {
	low, high := c.median()
	near := func(m int64) bool { return late >= m-c.tolerance && early <= m+c.tolerance }
	return near(low) || near(high)
}

// median returns the median of the others' offsets and the registry's own, 0: of
// an even number of offsets, both in the middle.
func (c *clock) median() (low, high int64) {
	all := append(slices.Clone(c.others), 0)
	slices.Sort(all)
	return all[(len(all)-1)/2], all[len(all)/2]
}

// A behindPolicy decides what a worker does whose clock is right, but behind
// its own past.
type behindPolicy struct {
	reclaim bool // it acquires another number
}

// another reports whether a worker that is behind by d acquires another number
// instead of waiting.
func (p behindPolicy) another(d time.Duration) bool {
	return d > 0 && (p.reclaim || d > maxWait)
}

// remedy describes what happens to a worker that is behind by d.
func (p behindPolicy) remedy(d time.Duration) string {
	if p.another(d) {
		return "this worker acquires another number if its clock is right; nothing to do but check the clock"
	}
	return "no snowflakes here until the clock has caught up; " +
		"to acquire another number instead, restart with --on-clock-step reclaim"
}
