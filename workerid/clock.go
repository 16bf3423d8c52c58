package workerid

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A clock compares this machine's wall clock with its monotonic clock, and with the clocks of the registry and the
// other workers. Uniqueness depends on windows (the times that the registry gives a number's owner), not on clocks. The
// comparison keeps the time in IDs true, and keeps a wrong clock from moving a window by years. Only the goroutine of
// Keeper.Run uses a clock.
//
// The wall clock is compared before the first write of a search, every compareEvery, and soon after a step beyond the
// tolerance. Between comparisons the monotonic clock continues the last reading. The offset is the wall clock minus the
// registry's clock, which also dates the heartbeats. The wall clock is read before and after the registry's; the offset
// lies between both differences.
//
//   - The offset must be within the tolerance of the median of all offsets. The registry counts as one voice, with
//     offset 0: two workers alone cannot identify the wrong clock of the two, three voices can.
//   - Of an even number of voices, either of the two in the middle is a median. Their mean is not: the mean of 0 and
//     24 h would refuse both clocks, and accept one that is 12 h off.
//   - The tolerance is MaxClockSkew, at least 1 s, since calls take time, and heartbeats are dated when they arrive. A
//     slow network is not a wrong clock.
//   - The others' offsets come from a list of all heartbeats, which is read every othersAge, after a step, and before a
//     clock is refused. A clock that agrees with the last list, or that was not set since it was found right, needs no
//     other list. So missing heartbeats stop no running worker.
//   - A clock that was found right, and was not set since, may fail maxDoubts comparisons in a row. When the
//     registry's clock is set, the latest heartbeats still vouch for its old time, and every worker would be
//     refused. The same holds for a worker that starts within the window of its state file, since the previous
//     process wrote that window by a right clock; but its clock must agree with the registry's.
//   - A step within MaxAhead, or within one tick, needs no comparison: the generator waits for the clock. After a step
//     beyond the tolerance nothing is issued until the clock was compared, which needs the registry.
//
// What a running worker does if its clock
//
//	is set back by up to MaxAhead       continues
//	is set back within the tolerance    as in the last row
//	is set ahead within the tolerance   continues
//	is set beyond it, and is right now  issues nothing until the clock was compared
//	is set beyond it, and is wrong      issues, renews and reports nothing until it is right
//	drifts away                         the same from the fourth failed comparison on
//	differs as the registry's was set   continues if the next heartbeats of others show that
//	is right, but behind the last ID    refuses until it has caught up; acquires another number
//	                                    at the second heartbeat in a row
type clock struct {
	cfg       *Config
	tolerance int64 // how far the clock may be from the others', ms
	slack     int64 // largest change, in ms, that does not count as a step
	onStep    func(step time.Duration)
	rand      *rand.Rand

	born     time.Time // origin of the monotonic time
	lead     int64     // wall clock minus monotonic clock at the last reading of both, ms
	proven   bool      // found right, or in the state file's window at the start; and not set since
	doubts   int       // comparisons in a row that failed though the clock was not set
	last     reading   // last reading of the clock while it was right
	compared time.Time // when the clock was last found right; zero before the first time
	others   []int64   // offsets of the other workers, ms
	due      time.Time // when others is to be read again
}

// A reading is what the wall clock showed at one moment, and that moment on the monotonic clock. So elapsed can
// continue it, even if the process stood still or the wall clock was set since.
type reading struct {
	now    int64         // Unix ms
	at     time.Time     // the moment, for its monotonic reading
	offset time.Duration // the wall clock minus the registry's
}

// elapsed returns the present time by the wall clock of the reading and the monotonic clock, Unix ms.
func (r reading) elapsed() int64 { return r.now + time.Since(r.at).Milliseconds() }

const (
	// compareEvery is the maximum age of a comparison with the registry's clock: three heartbeats.
	compareEvery = 8 * time.Second
	// othersAge is the maximum age of the list of the others' offsets. It is long, since each worker of a fleet reads
	// the heartbeats of all.
	othersAge = 5 * time.Minute
	// precision is the smallest difference of two clocks that a comparison can show.
	precision = time.Second
	// maxDoubts is how many comparisons in a row may fail for a clock that was not set.
	maxDoubts = 3
)

// start begins to watch whether the clock is set. isIn reports whether a time, in Unix ms, is in the window of the
// state file; a clock in that window counts as right at the start.
func (c *clock) start(isIn func(now int64) bool) {
	c.born = time.Now()
	c.lead, _ = c.leads()
	c.proven = isIn(c.lead)
}

// leads returns the wall clock minus the monotonic clock, and the possible error: the time between the two readings, in
// which the process may have been off its CPU. Both are in ms.
func (c *clock) leads() (lead, inexact int64) {
	for range 3 {
		before := time.Since(c.born).Milliseconds()
		lead = c.cfg.Now() - before
		if inexact = time.Since(c.born).Milliseconds() - before; inexact <= 1 {
			break
		}
	}
	return lead, inexact
}

// stepped returns by how many ms the clock was set since the last call. If it was set, stepped calls onStep, and the
// clock is no longer proven.
func (c *clock) stepped() (step int64) {
	lead, inexact := c.leads()
	if step = lead - c.lead; max(step, -step) > c.slack+inexact {
		c.lead, c.proven = lead, false
		c.onStep(time.Duration(step) * time.Millisecond)
		return step
	}
	if inexact <= 1 {
		c.lead = lead // drift is not a step
	}
	return 0
}

// read returns a reading of a right clock: one that was compared within compareEvery, or is compared now. A clock
// that was found right, was not set since, and cannot be compared now counts as right. If the clock is wrong, the
// error wraps errClock, and the reading has only the offset. Any other error: the clock was set and cannot be
// compared.
func (c *clock) read(ctx context.Context) (reading, error) {
	if c.stepped() == 0 && c.proven && c.doubts == 0 && time.Since(c.compared) < compareEvery {
		return c.proceed(), nil
	}
	r, _, err := c.compare(ctx, false)
	if err != nil && !errors.Is(err, errClock) && c.proven && c.stepped() == 0 {
		return c.proceed(), nil
	}
	return r, err
}

// proceed returns a reading of a clock that was not set since it was found right.
func (c *clock) proceed() reading {
	at := time.Now()
	c.last = reading{now: c.lead + at.Sub(c.born).Milliseconds(), at: at, offset: c.last.offset}
	return c.last
}

// compare compares the clock with the registry's and the other workers': see clock. It returns the heartbeats if it
// has read them. If fresh is true it always reads them, and fails if it cannot.
func (c *clock) compare(ctx context.Context, fresh bool) (r reading, beats map[int]Heartbeat, err error) {
	c.stepped()
	early, late, now, err := c.bounds(ctx)
	if err != nil {
		return reading{}, nil, err
	}
	agreed := c.agrees(early, late)
	if fresh || !c.proven || !agreed || time.Now().After(c.due) {
		if beats, err = c.readOthers(ctx, fresh); err != nil && (fresh || !agreed) {
			return reading{}, nil, err
		}
		agreed = c.agrees(early, late)
	}
	if c.stepped() != 0 {
		return reading{}, nil, errors.New("workerid: the clock was set while it was compared")
	}
	r = reading{now: now, at: time.Now(), offset: time.Duration(early+late) / 2 * time.Millisecond}
	switch {
	case agreed: //mutant:clock-agrees
		c.proven, c.doubts, c.compared = true, 0, r.at
	case c.proven && c.doubts < maxDoubts && (!c.compared.IsZero() || c.isNear(0, early, late)):
		c.doubts++
	default:
		low, high := c.median()
		return reading{offset: r.offset}, nil, fmt.Errorf("%w: its offset from the registry's clock is %v, the "+
			"median of all offsets is %v to %v, and they may differ by %v at most (--max-clock-skew, at least 1s): "+
			"set this machine's clock",
			errClock, r.offset, time.Duration(low)*time.Millisecond, time.Duration(high)*time.Millisecond,
			time.Duration(c.tolerance)*time.Millisecond)
	}
	c.last = r
	return r, beats, nil
}

// bounds returns the lowest and the highest offset from the registry's clock that this clock may have, in ms, and
// the latest reading of this clock, Unix ms.
func (c *clock) bounds(ctx context.Context) (early, late, now int64, err error) {
	for range 3 {
		before := c.cfg.Now()
		at, err := within(ctx, callTimeout, c.cfg.Registry.Time)
		if err != nil {
			return 0, 0, 0, err
		}
		now = c.cfg.Now()
		early, late = before-at, now-at
		// The registry read its clock between before and now. If the bounds are in the wrong order, or farther apart
		// than a call may take, the clock was set.
		if width := late - early; 0 <= width && width <= callTimeout.Milliseconds() {
			// Assume that both ways of a slow call take equally long.
			spare := max(0, width-precision.Milliseconds()) / 2
			return early + spare, late - spare, now, nil
		}
	}
	return 0, 0, 0, errors.New("workerid: the registry is too slow for its time to be compared")
}

// readOthers reads the heartbeats of the live workers, and computes the offsets of their clocks. If that fails, the
// last offsets stay. Unless fresh is true the time limit is short: this worker's next heartbeat waits for the list.
func (c *clock) readOthers(ctx context.Context, fresh bool) (map[int]Heartbeat, error) {
	limit := callTimeout
	if fresh {
		limit = listTimeout
	}
	beats, err := within(ctx, limit, c.cfg.Registry.Heartbeats)
	c.due = time.Now().Add(about(c.rand, othersAge))
	if err != nil {
		return nil, fmt.Errorf("workerid: the heartbeats of others cannot be read: %w", err)
	}
	c.others = c.others[:0]
	for _, h := range beats {
		if h.Time != 0 && h.Instance != c.cfg.Instance {
			c.others = append(c.others, h.Offset().Milliseconds())
		}
	}
	return beats, nil
}

// agrees reports whether an offset between early and late is within the tolerance of the median.
func (c *clock) agrees(early, late int64) bool {
	low, high := c.median()
	return c.isNear(low, early, late) || c.isNear(high, early, late)
}

// isNear reports whether an offset between early and late can be within the tolerance of m.
func (c *clock) isNear(m, early, late int64) bool {
	return late >= m-c.tolerance && early <= m+c.tolerance
}

// median returns the median of the others' offsets and the registry's, which is 0. Of an even number of offsets it
// returns both in the middle.
func (c *clock) median() (low, high int64) {
	all := append(slices.Clone(c.others), 0)
	slices.Sort(all)
	return all[(len(all)-1)/2], all[len(all)/2]
}

// behindText is the alarm for a clock that is behind: by how much, and behind which time of this worker.
const behindText = "the clock is %v behind %s: no snowflakes here until it has caught up or, within seconds, " +
	"this worker has acquired another number; nothing to do but check the clock"
