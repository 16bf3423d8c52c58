package workerid

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// hastyEach is the shortest time between two heartbeats. The next heartbeat comes early after a step of the clock,
// but a clock that jitters must not multiply the calls.
const hastyEach = time.Second

// hold sends heartbeats for claim c, the hold of a number, moves the fence on disk, and watches the clock, until ctx
// ends or the claim must be given up. It returns nil if ctx ended; else errLost, errEnded, errBehind or [ErrStateFile].
func (k *Keeper) hold(ctx context.Context, c *claim) error {
	ctx, stop := context.WithCancelCause(ctx)
	var fencing sync.WaitGroup
	defer fencing.Wait()
	defer stop(nil)
	if !k.file.absent {
		fencing.Go(func() { stop(k.keepFence(ctx, c)) })
	}
	for ctx.Err() == nil {
		if err := k.beat(ctx, c); err != nil {
			return err
		}
		k.awaitBeat(ctx)
	}
	if err := context.Cause(ctx); errors.Is(err, ErrStateFile) {
		return err
	}
	return nil
}

// keepFence keeps the fence, the time on disk below which IDs may be issued, ahead of the clock until ctx ends.
// While issuing is suspended the fence stays, since the clock may be wrong. keepFence has a goroutine of its own,
// since calls to the registry may hang. The error is [ErrStateFile].
func (k *Keeper) keepFence(ctx context.Context, c *claim) error {
	tick := time.NewTicker(fenceEvery)
	defer tick.Stop()
	for wait(ctx, tick) {
		if k.life.phase() == suspended {
			continue
		}
		limit, err := k.file.moveFence(c.until.Load(), func(*state) {})
		if err != nil {
			return err
		}
		c.gen.Extend(min(limit, c.usable()))
	}
	return nil
}

// awaitBeat waits until the next heartbeat is due. If the clock was set far it returns early, so that the clock is
// compared soon.
func (k *Keeper) awaitBeat(ctx context.Context) {
	began, due := time.Now(), k.cfg.interval()
	tick := time.NewTicker(min(k.watch, due))
	defer tick.Stop()
	for time.Since(began) < due && wait(ctx, tick) {
		if step := k.clock.stepped(); max(step, -step) > k.clock.tolerance {
			due = min(due, hastyEach)
		}
	}
}

func wait(ctx context.Context, tick *time.Ticker) bool {
	select {
	case <-tick.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// beat is one heartbeat. It reads the clock, reads or renews the record, and puts the worker's heartbeat into the
// registry. If the clock was set and not compared, beat writes nothing. After an error the claim must be given up.
//
// A claim that was resumed while the registry is out of reach issues within its old window. A claim that was acquired
// issues nothing before its record has been read again: the registry may have lost the record before this worker
// began to answer for the number.
func (k *Keeper) beat(ctx context.Context, c *claim) error {
	r, err := k.clock.read(ctx)
	switch {
	case errors.Is(err, errClock):
		k.alarms.set(ClockSkew, err.Error())
		k.life.becomeSuspended(err.Error())
		k.life.note(func(s *Status) { s.Offset = r.offset })
	case err == nil:
		err = k.beatAt(ctx, c, r)
	case c.away && k.life.phase() == holding:
		k.life.becomeIssuing(c)
	}
	if isOver(err) {
		return err
	}
	k.trouble(ctx, c, err)
	if r.at.IsZero() {
		return nil
	}
	return k.checkBehind(c, r)
}

// beatAt is the part of a heartbeat that needs a reading r of a right clock. It returns an error of the registry, or
// why the claim must be given up.
func (k *Keeper) beatAt(ctx context.Context, c *claim, r reading) error {
	k.alarms.clear(ClockSkew)
	k.alarms.clear(ClockStep)
	k.warnOfEnd(r.now)
	err := c.renew(ctx, r.now)
	k.life.note(func(s *Status) { s.Offset, s.Until = r.offset, c.until.Load() })
	switch { //mutant:rechecked
	case err == nil:
		k.life.becomeIssuing(c)
		return c.heartbeat(ctx)
	case c.away && k.life.phase() == holding && !isOver(err): //mutant:unread
		k.life.becomeIssuing(c)
	}
	return err
}

func isOver(err error) bool {
	return errors.Is(err, errLost) || errors.Is(err, errEnded) || errors.Is(err, ErrStateFile)
}

// trouble records in the status why the heartbeat failed; nil means that it did not. Of several failures in a row,
// only the first is logged.
func (k *Keeper) trouble(ctx context.Context, c *claim, err error) {
	known := false
	k.life.note(func(s *Status) { known, s.Trouble = s.Trouble != nil, err })
	if err != nil && !known && ctx.Err() == nil {
		k.cfg.Log.Warn("a heartbeat failed: snowflakes are issued until the window of the worker number ends, "+
			"if the clock is right; check NATS and the clock",
			"number", c.number, "until", time.UnixMilli(c.usable()).UTC(), "error", err)
	}
}

// checkBehind returns errBehind if the clock, which was just found right, is behind the last ID of the number at two
// heartbeats in a row. One heartbeat alone may err, if this goroutine lost its CPU. A burst of IDs, which runs ahead of
// the clock, does not count, nor does the time before the window of a new claim.
//
// Law: to give the number up repeats no ID. Its record covers all IDs under it, since a release keeps the window's end
// above the last tick. The next number is acquired as any other, so its window begins after those of all former owners.
func (k *Keeper) checkBehind(c *claim, r reading) error {
	now := max(r.elapsed(), k.cfg.Now()) // the clock may have been set since the reading
	if time.Now().Before(c.begins) {
		now = max(now, c.from)
	}
	b, ok := errors.AsType[*snowflake.BehindError](c.gen.CheckAt(now))
	wasBehind := c.behind
	if c.behind = ok && b.By > max(k.cfg.MaxAhead, k.cfg.unit())+k.cfg.unit(); !c.behind {
		k.alarms.clear(ClockBehind)
		return nil
	}
	if !wasBehind {
		return nil
	}
	k.alarms.set(ClockBehind, fmt.Sprintf(behindText, b.By, fmt.Sprint("the IDs of number ", c.number)))
	return fmt.Errorf("%w: by %v", errBehind, b.By)
}

// warnOfEnd raises an alarm years before the time field is full.
func (k *Keeper) warnOfEnd(now int64) {
	if l := k.cfg.Layout; l.EndsSoon(time.UnixMilli(now)) {
		k.alarms.set(TimeEnds, fmt.Sprintf("the time field of layout %s is full on %s: no snowflakes from then on; "+
			"plan a new layout in a namespace of its own, `natsid layout` helps", l, l.Ends().Format(time.DateTime)))
	}
}
