package workerid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Clocks decide nothing about uniqueness: windows do. The rules here keep IDs
// true to time, and a wrong clock from carrying a window away for years.

// errClock says that this worker's clock must be mended before it may write
// or issue anything.
var errClock = errors.New("workerid: the own clock cannot be trusted")

// errBehind says that the clock is behind what this worker issued or reported
// before: it was ahead then, or is set back now.
var errBehind = errors.New("workerid: the own clock is behind what was issued or reported under it")

// maxWait is the longest that a keeper waits for a clock to catch up. A clock
// that once was years ahead must not lock its worker out for years.
const maxWait = 24 * time.Hour

// reclaims reports whether a worker whose clock is right, but behind its own
// past by d, takes another number instead of waiting.
func (k *Keeper) reclaims(d time.Duration) bool {
	return d > 0 && (k.cfg.Reclaim || d > maxWait)
}

// remedy says what becomes of a clock that is behind by d.
func (k *Keeper) remedy(d time.Duration) string {
	if k.reclaims(d) {
		return "another number is taken if the clock is found right"
	}
	return "waiting until the clock has caught up; --on-clock-step reclaim would take another number"
}

// A clock compares the own wall clock with its own monotonic time, and with
// the other workers' clocks. Only the goroutine of Keeper.Run uses it.
type clock struct {
	now  func() int64 // wall clock, Unix ms
	born time.Time    // origin of the monotonic time
	lead int64        // of the wall clock over the monotonic one, ms, as last seen

	proven bool    // found right, and not set since
	doubts int     // comparisons in a row that failed though it was not set
	others []int64 // offsets of the other workers, ms
	asked  time.Time
}

func newClock(now func() int64) *clock {
	c := &clock{now: now, born: time.Now()}
	c.lead, _ = c.leads()
	return c
}

// leads returns by how much the wall clock leads the monotonic one, and what
// that may be wrong by: the time between two readings, in which the process
// may have been off its CPU. Both in ms.
func (c *clock) leads() (lead, slack int64) {
	for range 3 {
		before := time.Since(c.born).Milliseconds()
		lead = c.now() - before
		if slack = time.Since(c.born).Milliseconds() - before; slack <= 1 {
			break
		}
	}
	return lead, slack
}

// step returns by how much the wall clock was set since the last call, in ms;
// 0 if that is within tolerance.
func (c *clock) step(tolerance int64) int64 {
	lead, slack := c.leads()
	d := lead - c.lead
	if max(d, -d) > tolerance+slack {
		c.lead = lead
		return d
	}
	if slack <= 1 {
		c.lead = lead // what a clock drifts is no step
	}
	return 0
}

const (
	// othersAge is how old a list of the others' offsets may be. It is read
	// anew before anyone is refused.
	othersAge = 30 * time.Second
	// maxDoubts is how many comparisons in a row may fail for a clock that was
	// not set: it is the registry's clock that was, and the others' heartbeats
	// need a moment to show it.
	maxDoubts = 3
)

// check compares the own clock with the others': its offset from the registry's
// time may differ from the median of theirs by the tolerance at most. The registry
// itself counts as one of them, with an offset of 0: so a worker by itself is
// compared with the registry, and of two workers the wrong one is refused.
//
// It returns the reading of the own clock that was compared, and its offset.
// The error is errClock, or that the registry could not be asked.
func (k *Keeper) check(ctx context.Context) (now int64, offset time.Duration, err error) {
	c := k.clock
	k.stepped()
	early, late, now, err := k.offset(ctx)
	if err != nil {
		return 0, 0, err
	}
	offset = time.Duration(early+late) / 2 * time.Millisecond
	if time.Since(c.asked) > othersAge || !c.agree(early, late, k.tolerance()) {
		if err := k.readOthers(ctx); err != nil {
			return 0, 0, err
		}
	}
	agreed := c.agree(early, late, k.tolerance())
	switch {
	case k.stepped():
		return 0, 0, errors.New("workerid: the own clock was set while it was compared")
	case agreed: //mutant:clock-agrees
		c.proven, c.doubts = true, 0
		return now, offset, nil
	case c.proven && c.doubts < maxDoubts:
		c.doubts++
		return now, offset, nil
	}
	low, high := c.median()
	return 0, offset, fmt.Errorf("%w: it is %v from the registry's, and the others' median is %v to %v, farther apart than %v (--max-clock-skew, at least 1s): set this machine's clock",
		errClock, offset, time.Duration(low)*time.Millisecond, time.Duration(high)*time.Millisecond, time.Duration(k.tolerance())*time.Millisecond)
}

func (k *Keeper) skew() int64 { return k.cfg.MaxClockSkew.Milliseconds() }

// tolerance returns how far the own clock may differ from the others', in ms.
// A call may take as long as callTimeout, and clocks cannot be compared finer
// than that.
func (k *Keeper) tolerance() int64 { return max(k.skew(), callTimeout.Milliseconds()) }

// offset returns between which bounds the own clock's distance from the
// registry's lies, in ms, and a reading of the own clock within.
func (k *Keeper) offset(ctx context.Context) (early, late, now int64, err error) {
	for range 3 {
		before := k.cfg.Now()
		at, err := k.registryTime(ctx)
		if err != nil {
			return 0, 0, 0, err
		}
		now = k.cfg.Now()
		early, late = before-at, now-at
		// The registry read its clock in between. Too wide, and nothing could be
		// told; turned round, and the own clock was set in between.
		if width := late - early; 0 <= width && width <= k.tolerance() {
			return early, late, now, nil
		}
	}
	return 0, 0, 0, errors.New("workerid: the registry is too slow for its time to be compared")
}

func (k *Keeper) registryTime(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return k.cfg.Registry.Time(ctx)
}

// readOthers reads the offsets of the workers that live.
func (k *Keeper) readOthers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	leases, err := k.cfg.Registry.Heartbeats(ctx)
	if err != nil {
		return err
	}
	k.clock.others = k.clock.others[:0]
	for _, l := range leases {
		if l.Time != 0 && l.Instance != k.instance {
			k.clock.others = append(k.clock.others, l.Offset().Milliseconds())
		}
	}
	k.clock.asked = time.Now()
	return nil
}

// agree reports whether an offset between early and late is within tolerance of
// the median.
func (c *clock) agree(early, late, tolerance int64) bool {
	low, high := c.median()
	near := func(m int64) bool { return late >= m-tolerance && early <= m+tolerance }
	return near(low) || near(high)
}

// median returns the middle of the others' offsets and the registry's own 0:
// of an even number both in the middle.
func (c *clock) median() (low, high int64) {
	all := append(slices.Clone(c.others), 0)
	slices.Sort(all)
	return all[(len(all)-1)/2], all[len(all)/2]
}
