package workerid

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// resume acquires the number that the state file remembers; nil if it cannot.
//
// If the file has a claim, the previous life crashed. While the record bears the
// claim's token the number is still this worker's, and it resumes the rest of
// its own window from the fence on: nothing beyond the fence was ever issued. A
// life that was killed between a renewal and its entry in the file cannot be
// resumed. If the file has no claim, the previous life stopped cleanly, and its
// number is acquired like any other.
func (h *chooser) resume(ctx context.Context, seen reading, v view) (c *claim, err error) {
	w, ok := h.file.number(h.mine)
	if !ok || h.avoid {
		return nil, nil
	}
	r := v.records[w]
	switch last := h.file.Claim; {
	// It was written when the disk worked again: another number issues sooner.
	case last != nil && last.Fence > seen.now+h.longestFence():
	case last != nil && last.Token == r.Token && seen.now < r.Until: //mutant:resume
		rest := h.claimOn(w, max(last.Fence, seen.now))
		rest.resumed = true
		c, err = h.confirm(ctx, seen, rest, r)
	// The window has passed: it is a new claim on the own number.
	case last != nil && last.Token == r.Token:
		c, err = h.own(ctx, seen, w, last.Fence, r)
	// Its last ID may have run a little ahead of the clock.
	case last == nil && v.free(w, seen.now+fenceReach.Milliseconds()),
		// To the end of the next tick, if that was this worker's.
		last == nil && h.file.own(w).wrote(r.Token) && v.free(w, seen.now+2*h.layout.Unit):
		c, err = h.acquire(ctx, seen, w, r)
	}
	if errors.Is(err, errTaken) || errors.Is(err, errUnknown) {
		return nil, nil
	}
	return c, err
}

// longestFence returns how far a fence is ahead of the clock, in ms, at most,
// unless the file had failed before.
func (h *chooser) longestFence() int64 {
	return (h.file.reach + unheardFor + h.margin).Milliseconds()
}

// own acquires number w again, whose record r this worker wrote and whose window
// has passed, from a time on that it never reached: used, Unix ms. Another worker
// may have had the number since, if the registry was restored.
func (h *chooser) own(ctx context.Context, seen reading, w int, used int64, r Record) (*claim, error) {
	c := h.claimOn(w, max(used, seen.now))
	c.doubtful = true
	return h.confirm(ctx, seen, c, r)
}

// reacquire acquires the number whose window passed while this process held it;
// nil if it cannot.
func (h *chooser) reacquire(ctx context.Context, seen reading, v view) (*claim, error) {
	last := h.ended
	if last == nil || !last.wrote(v.records[last.number]) {
		return nil, nil
	}
	c, err := h.own(ctx, seen, last.number, last.gen.Close(), v.records[last.number])
	if errors.Is(err, errTaken) || errors.Is(err, errUnknown) {
		return nil, nil
	}
	return c, err
}

// findAway is find while the registry is out of reach, as why says: this
// worker's own number can be resumed, no other can be acquired.
func (h *chooser) findAway(ctx context.Context, why error) (*claim, error) {
	if h.awaySince.IsZero() {
		h.awaySince = time.Now()
	}
	why = fmt.Errorf("%w: %w", errAway, why)
	if h.file.absent || h.file.Claim == nil {
		return nil, fmt.Errorf("%w; the state file has no window to resume", why)
	}
	if time.Since(h.awaySince) < awayAfter {
		return nil, &waitError{why, 0, awayAfter / 4}
	}
	c, err := h.resumeAway(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w; %w", why, err)
	}
	h.log.Warn("the registry is out of reach: this worker resumes its number until the window ends; check NATS",
		"number", c.number, "until", time.UnixMilli(c.until.Load()).UTC(), "error", why)
	return c, nil
}

// resumeAway resumes the number of the previous life while the registry is out
// of reach: inside the rest of the window that the state file remembers, from
// the fence on, and nowhere else. No other worker was ever given that: others
// begin where the record's window ends, and a clean stop, which lowers that,
// removes the claim from the file first.
func (h *chooser) resumeAway(ctx context.Context) (*claim, error) {
	w, ok := h.file.number(h.mine)
	if !ok || h.file.Claim == nil || DeploymentOf(h.layout).check(h.file.Deployment) != nil {
		return nil, errors.New("workerid: the state file has no window to resume")
	}
	last, now := h.file.Claim, h.clock.now()
	if behind := time.Duration(h.file.reported()-now) * time.Millisecond; behind > h.maxAhead {
		h.alarms.set(ClockBehind, fmt.Sprintf("the clock is %v behind the state file, and the registry is out of "+
			"reach: no snowflakes until the clock has caught up or the registry is back; check both", behind))
		return nil, fmt.Errorf("%w: by %v", errBehind, behind)
	}
	from, until := max(last.Fence, now), last.Until //mutant:resume-away
	if from >= until {
		return nil, errors.New("workerid: the window in the state file has ended")
	}
	c := h.claimOn(w, from)
	if err := h.ask(ctx, c); err != nil {
		return nil, err
	}
	c.revision, c.token, c.deployment, c.away = last.Revision, last.Token, h.file.Deployment, true
	c.until.Store(until)
	c.compared = reading{now: now, at: time.Now()} // as far as it can be known
	return c, c.open(now)
}
