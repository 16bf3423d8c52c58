package workerid

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// resume acquires the number that the state file remembers; nil if it cannot.
//
// If the file has a claim, the previous process crashed. While the record is of a write of that claim the number is
// still this worker's, and the worker resumes the rest of its own window from the fence on: nothing beyond the fence
// was ever issued. That process may have been killed between a renewal and the entry of the renewal in the file. If
// the file has no claim, the previous process stopped cleanly, and its number is acquired like any other.
func (h *chooser) resume(ctx context.Context, seen reading, v view) (c *claim, err error) {
	w, ok := h.file.number(h.mine)
	if !ok || h.gaveUpOwn {
		return nil, nil
	}
	r := v.records[w]
	switch last := h.file.Claim; {
	// A fence so far ahead was put at until when the disk worked again: under another number IDs are issued sooner.
	case last != nil && last.Fence > seen.now+(h.file.reach+unheardFor+h.margin).Milliseconds():
	case last != nil && last.wrote(r) && seen.now < r.Until: //mutant:resume
		rest := h.claimOn(w, max(last.Fence, seen.now))
		rest.resumed = true
		c, err = h.confirm(ctx, seen, rest, r)
	// The window has passed: it is a new claim on the own number.
	case last != nil && last.wrote(r):
		c, err = h.own(ctx, seen, w, last.Fence, r)
	// The last ID of the number may have run a little ahead of the clock.
	case last == nil && v.isFree(w, seen.now+fenceReach.Milliseconds()),
		// This worker released the number: its last ID is before the end of the next tick.
		last == nil && h.file.own(w).wrote(r.Token) && v.isFree(w, seen.now+2*h.layout.Unit):
		c, err = h.acquire(ctx, seen, w, r)
	}
	if errors.Is(err, errTaken) || errors.Is(err, errUnknown) {
		return nil, nil
	}
	return c, err
}

// own acquires number w again. This worker wrote its record r, and its window has passed. The new window begins at
// used or later: a time that the old window never reached, Unix ms. Another worker may have had the number since, if
// the registry was restored.
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
	//mutant:reacquire
	c, err := h.own(ctx, seen, last.number, last.gen.Close(), v.records[last.number])
	if errors.Is(err, errTaken) || errors.Is(err, errUnknown) {
		return nil, nil
	}
	return c, err
}

// findAway is find while the registry is out of reach for the reason why: only this worker's own number can be
// resumed, and no other can be acquired.
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

// resumeAway resumes the number of the previous process while the registry is out of reach: only inside the rest of
// the window that the state file remembers, from the fence on. No other worker was ever given that part: other
// workers begin where the record's window ends, and a clean stop, which lowers that end, removes the claim from the
// file first.
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
	c.revision, c.token, c.deployment, c.resumedAway = last.Revision, last.Token, h.file.Deployment, true
	c.until.Store(until)
	c.compared = reading{now: now, at: time.Now()} // the best known time: no comparison is possible
	return c, c.open(now)
}
