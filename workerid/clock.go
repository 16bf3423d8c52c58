package workerid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A clock compares this machine's wall clock with its monotonic clock, and with
// the clocks of the registry and the other workers. Clocks decide nothing about
// uniqueness: windows do. A clock keeps IDs true to time, and keeps a wrong
// reading from moving a window years ahead. Only the goroutine of Keeper.Run
// uses it.
//
// It is compared before the first write of a search, at each heartbeat before
// anything is written, and at once after a step. The offset is the wall clock
// minus the registry's, whose clock also dates the heartbeats. The wall clock is
// read before and after, and the offset lies between both differences.
//
//   - The offset must be within the tolerance of the median of all offsets, where
//     the registry is one voice, with 0: two workers alone cannot know which of
//     them is wrong, three voices can.
//   - Of an even number of voices either one in the middle will do. Their mean is
//     not the time of any clock: that of 0 and 24 h would refuse both, and let a
//     clock pass that is 12 h off.
//   - The tolerance is MaxClockSkew, at least 1 s: a call may take 1 s, and
//     heartbeats are dated when they arrive. A slow network is not a wrong clock.
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
	asked  time.Time // when others was read
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
	// othersAge is how old the list of the others' offsets may be. It is read
	// again before any clock is refused.
	othersAge = 30 * time.Second
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

// stepped reports whether the clock was set since the last call, and calls
// onStep if so. The clock has to prove itself again then.
func (c *clock) stepped() bool {
	lead, inexact := c.leads()
	step := lead - c.lead
	if max(step, -step) > c.slack+inexact {
		c.lead, c.proven = lead, false
		c.onStep(time.Duration(step) * time.Millisecond)
		return true
	}
	if inexact <= 1 {
		c.lead = lead // drift is not a step
	}
	return false
}

// compare compares the clock with the others'. The error wraps errClock, with
// the offset in the reading, if the clock is wrong; any other error means that
// it could not be compared.
func (c *clock) compare(ctx context.Context) (reading, error) {
	c.stepped()
	early, late, now, err := c.bounds(ctx)
	if err != nil {
		return reading{}, err
	}
	if time.Since(c.asked) > othersAge || !c.agree(early, late) {
		if err := c.readOthers(ctx); err != nil {
			return reading{}, err
		}
	}
	agreed := c.agree(early, late)
	if c.stepped() {
		return reading{}, errors.New("workerid: the clock was set while it was compared")
	}
	r := reading{now: now, at: time.Now(), offset: time.Duration(early+late) / 2 * time.Millisecond}
	switch {
	case agreed: //mutant:clock-agrees
		c.proven, c.doubts = true, 0
		return r, nil
	case c.proven && c.doubts < maxDoubts:
		c.doubts++
		return r, nil
	}
	low, high := c.median()
	return reading{offset: r.offset}, fmt.Errorf("%w: its offset from the registry's clock is %v, "+
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
		// The registry read its clock in between. Bounds that are too far apart say
		// nothing; bounds in the wrong order mean that the clock was set.
		if width := late - early; 0 <= width && width <= c.tolerance {
			return early, late, now, nil
		}
	}
	return 0, 0, 0, errors.New("workerid: the registry is too slow for its time to be compared")
}

func (c *clock) registryTime(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.registry.Time(ctx)
}

// readOthers reads the offsets of the live workers.
func (c *clock) readOthers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	heartbeats, err := c.registry.Heartbeats(ctx)
	if err != nil {
		return err
	}
	c.others = c.others[:0]
	for _, h := range heartbeats {
		if h.Time != 0 && h.Instance != c.self {
			c.others = append(c.others, h.Offset().Milliseconds())
		}
	}
	c.asked = time.Now()
	return nil
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
