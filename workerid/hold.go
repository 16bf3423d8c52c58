package workerid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// A holder holds one claim: it sends heartbeats, moves the fence and watches the clock, until the claim ends.
//
// A heartbeat comes every 3 s, or six times per horizon if that is more often. It comes at once after a step of the
// clock beyond the tolerance, at most once in hastyEach: a clock that jitters must not multiply the calls. It also
// comes sooner until the record has been read once more. A heartbeat does four things in this order, and stops at the
// first failure: it compares the clock, it compares the deployment, it renews the claim or reads its record, and it
// puts the worker's heartbeat into the registry. Nothing is written by a clock that was not compared.
//
// While there is no trouble and the window needs no renewal, a heartbeat makes all calls after the comparison of the
// clock concurrently. Then two of three heartbeats are brief: they compare neither the clock, which was not set, nor
// the deployment. Concurrent and brief heartbeats extend no window, so no window grows under a deployment or by a
// clock that was not just compared. The first law depends on that, and on the record, which every heartbeat reads.
//
// A heartbeat that renewed the claim puts no entry if the heartbeat before did: the registry's load is one write per
// worker and interval. Entries expire after many intervals and restrict no worker.
type holder struct {
	claim    *claim
	clock    *clock
	alarms   *alarms
	life     *lifecycle
	interval time.Duration // between heartbeats
	watch    time.Duration // between looks at the clock
	log      *slog.Logger

	unread    int       // heartbeats so far after which the record was unread
	lastHasty time.Time // time of the last heartbeat that came at once
	lastWhole time.Time // time of the last complete heartbeat without trouble; zero if one had trouble since
	isEarly   bool      // the number is not used yet
	wasPut    bool      // the last heartbeat was put into the registry
	lag       lag       // behind the IDs of the number
}

const (
	// minRest is the pause after the first heartbeat that did not read the record.
	minRest = 500 * time.Millisecond
	// hastyEach is the shortest time between two heartbeats that come at once.
	hastyEach = time.Second
)

// hold holds the claim until ctx ends, which is not an error, or until the claim must be given up: errLost, errEnded,
// errBehind, [ErrDeployment] or [ErrStateFile].
func (h *holder) hold(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	var fencing sync.WaitGroup
	fence := func() {
		fencing.Go(func() {
			if err := h.keepFence(ctx); err != nil {
				stop(err)
			}
		})
	}
	if !h.claim.file.absent {
		fence()
	}
	defer fencing.Wait()
	defer stop(nil)
	for ctx.Err() == nil {
		if err := h.beat(ctx); err != nil {
			return err
		}
		back, err := h.retryFile()
		if err != nil {
			return err
		}
		if back {
			fence()
		}
		h.pause(ctx)
	}
	if err := context.Cause(ctx); errors.Is(err, ErrStateFile) {
		return err
	}
	return nil
}

// retryFile makes a state file whose write had failed hold the claim again, after a heartbeat without trouble, and
// reports whether the file does. The error is [ErrStateFile].
func (h *holder) retryFile() (back bool, err error) {
	if h.life.current().Trouble != nil || h.life.phase() != issuing {
		return false, nil
	}
	back, err = h.claim.retryFile()
	if back {
		h.log.Info("the state file can be written again: after a crash this worker resumes its number",
			"number", h.claim.number)
	}
	return back, err
}

// keepFence keeps the fence ahead of the clock until ctx ends, except while suspended, since the clock may be wrong.
// It does not wait for the registry, whose calls may hang. The error is [ErrStateFile].
func (h *holder) keepFence(ctx context.Context) error {
	tick := time.NewTicker(fenceEvery)
	defer tick.Stop()
	for wait(ctx, tick) {
		if h.life.phase() == suspended {
			continue
		}
		limit, err := h.claim.file.moveFence(h.claim.until.Load(), func(*state) {})
		if err != nil {
			return err
		}
		h.claim.gen.Extend(limit)
	}
	return nil
}

// pause waits until the next heartbeat is due. It ends early if the clock was set far, so that the clock is compared
// at once.
func (h *holder) pause(ctx context.Context) {
	due, far := time.Now().Add(h.interval), false
	if !h.claim.rechecked {
		due = time.Now().Add(min(minRest<<min(h.unread, 16), h.interval))
		h.unread++
	}
	tick := time.NewTicker(min(h.watch, h.interval))
	defer tick.Stop()
	for time.Now().Before(due) && wait(ctx, tick) {
		if far = h.clock.wasSetFar() || far; far && time.Since(h.lastHasty) > hastyEach {
			h.lastHasty = time.Now()
			return
		}
		h.clearEarly()
	}
}

// clearEarly clears errEarly from the status once the number is used.
func (h *holder) clearEarly() {
	if h.isEarly && h.early() == nil {
		h.isEarly = false
		h.life.note(func(s *Status) {
			if errors.Is(s.Trouble, errEarly) {
				s.Trouble = nil
			}
		})
	}
}

// wait waits for a tick and reports whether ctx has not ended.
func wait(ctx context.Context, tick *time.Ticker) bool {
	select {
	case <-tick.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// beat is one heartbeat. It returns an error only if the claim must be given up.
func (h *holder) beat(ctx context.Context) error {
	if r, ok := h.brief(); ok {
		return h.renewAs(ctx, r, true)
	}
	r, err := h.clock.compare(ctx)
	if err != nil {
		h.lastWhole = time.Time{}
		h.beatUncompared(ctx, r, err)
		return nil
	}
	h.alarms.clear(ClockSkew)
	h.alarms.clear(ClockStep)
	h.warnOfEnd(r.now)
	if err := h.renewAs(ctx, r, false); err != nil {
		return err
	}
	h.clock.refresh(ctx)
	return nil
}

// isSteady reports whether a complete heartbeat within that time had no trouble, and none had trouble since.
func (h *holder) isSteady(while time.Duration) bool {
	return !h.lastWhole.IsZero() && time.Since(h.lastWhole) <= while && h.life.phase() == issuing
}

// brief reports whether this heartbeat is brief; then it returns the extrapolated reading of the clock.
func (h *holder) brief() (r reading, ok bool) {
	if !h.isSteady(h.interval * 5 / 2) {
		return reading{}, false
	}
	r, ok = h.clock.still(h.claim.compared)
	return r, ok && !h.claim.isDue(r.now)
}

// renewAs renews the claim and puts the heartbeat, with the reading r of the clock.
func (h *holder) renewAs(ctx context.Context, r reading, brief bool) error {
	h.claim.compared = r
	trouble, fatal := h.renewAndReport(ctx, brief)
	if fatal != nil {
		return fatal
	}
	switch {
	case trouble != nil:
		h.lastWhole = time.Time{}
	case !brief:
		h.lastWhole = r.at
	}
	h.life.becomeIssuing(h.claim)
	h.life.note(func(s *Status) { s.Offset = r.offset })
	h.trouble(ctx, trouble)
	return h.checkBehind()
}

// beatUncompared is a heartbeat whose clock could not be compared, or was found wrong; why is the reason. It writes
// nothing. A claim that was resumed while the registry is out of reach issues within its old window. A claim that was
// acquired issues nothing before its record has been read again: the registry may have lost the record before this
// worker began to answer for the number.
func (h *holder) beatUncompared(ctx context.Context, r reading, why error) {
	h.claim.rechecked = h.claim.rechecked || h.claim.resumedAway //mutant:uncompared
	switch {
	case errors.Is(why, errClock):
		h.alarms.set(ClockSkew, why.Error())
		h.life.becomeSuspended(why.Error())
		h.life.note(func(s *Status) { s.Offset = r.offset })
	case h.life.phase() != suspended:
		h.life.becomeIssuing(h.claim)
		why = fmt.Errorf("%w: the clock was not compared: %w", errAway, why)
	default:
		why = fmt.Errorf("workerid: the clock was set, and not compared since: %w", why)
	}
	h.trouble(ctx, why)
}

// renewAndReport renews the claim and puts the heartbeat. After a trouble the claim continues; a fatal error ends it.
// A claim that was resumed while the registry is out of reach issues even if its record cannot be read: see
// beatUncompared.
func (h *holder) renewAndReport(ctx context.Context, brief bool) (trouble, fatal error) {
	before := h.claim.until.Load()
	var err, putErr error
	atOnce := brief || h.isSteady(h.interval*4) && !h.claim.isDue(h.claim.compared.now)
	if atOnce {
		putErr, err = h.concurrently(ctx, brief)
	} else {
		err = h.claim.sameDeployment(ctx, h.log) //mutant:deployment-held
		if err == nil {
			err = h.claim.renew(ctx)
		}
	}
	h.life.note(func(s *Status) { s.Until = h.claim.until.Load() })
	if isFatal(err) {
		return nil, err
	}
	if isRefused(err) {
		h.alarms.set(RegistryConflict, err.Error())
	}
	if err != nil {
		h.claim.rechecked = h.claim.rechecked || h.claim.resumedAway && isAway(err) //mutant:unrenewed
		return fmt.Errorf("workerid: the window of number %d was not renewed: %w", h.claim.number, err), nil
	}
	h.alarms.clear(RegistryConflict)
	h.claim.rechecked = true
	if h.wasPut && h.claim.until.Load() != before {
		h.wasPut = false
		return nil, nil
	}
	if !atOnce {
		putErr = h.claim.heartbeat(ctx)
	}
	if h.wasPut = putErr == nil; putErr != nil {
		return fmt.Errorf("workerid: the heartbeat of number %d was not put, and its window continues: %w",
			h.claim.number, putErr), nil
	}
	return nil, nil
}

// concurrently puts the heartbeat, reads the record and, unless it is brief, the deployment, all at once. It writes
// no record: a record with the token of an unacknowledged write is a trouble, and the next heartbeat, which is not
// steady then, renews it.
func (h *holder) concurrently(ctx context.Context, brief bool) (putErr, err error) {
	var calls sync.WaitGroup
	var other error
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	calls.Go(func() { putErr = h.claim.heartbeat(ctx) })
	if !brief {
		calls.Go(func() {
			if other = h.claim.sameDeployment(ctx, h.log); isFatal(other) { //mutant:deployment-together
				stop()
			}
		})
	}
	token, err := h.claim.recheck(ctx) //mutant:reread-together
	if isFatal(err) {                  //mutant:closed-late
		stop() // the generator must be closed before anything else
	}
	calls.Wait()
	switch {
	case other != nil && !isFatal(err):
		err = other
	case err == nil && token != h.claim.token:
		err = errors.New("workerid: the record is of a write that was not acknowledged")
	}
	return putErr, err
}

// isFatal reports whether a claim ends with err.
func isFatal(err error) bool {
	return errors.Is(err, errLost) || errors.Is(err, errEnded) || errors.Is(err, ErrDeployment) ||
		errors.Is(err, ErrStateFile)
}

// trouble records in the status why the heartbeat failed, or why the number is not used yet; nil if there is no
// trouble. It logs the first of consecutive failures.
func (h *holder) trouble(ctx context.Context, err error) {
	known, early := false, h.early()
	h.life.note(func(s *Status) {
		known = s.Trouble != nil && !errors.Is(s.Trouble, errEarly)
		if s.Trouble = err; err == nil {
			s.Trouble = early
		}
	})
	h.isEarly = early != nil
	if err != nil && !known && ctx.Err() == nil {
		h.log.Warn("a heartbeat failed: snowflakes are issued until the window of the worker number ends, "+
			"if the clock is right; check NATS and the clock",
			"number", h.claim.number, "until", time.UnixMilli(h.claim.until.Load()).UTC(), "error", err)
	}
}

// early returns errEarly with the time at which the number will be used; nil from then on.
func (h *holder) early() error {
	if !time.Now().Before(h.claim.begins) {
		return nil
	}
	why := "when no worker that had it before can issue"
	if h.claim.resumed {
		why = "since this worker, which did not stop cleanly, may have issued up to then"
	}
	return fmt.Errorf("%w: number %d is used from %s on, %s", errEarly,
		h.claim.number, time.UnixMilli(h.claim.from).UTC().Format(time.TimeOnly), why)
}

// checkBehind returns errBehind once the clock, which was just found right, has been behind the IDs of the number for
// maxBehind, by more than a burst explains. One look may be wrong, if this goroutine lost its CPU in it, so the second
// raises the alarm. A clock that has yet to reach the window of a new claim was not set back.
func (h *holder) checkBehind() error {
	c := h.claim
	now := max(c.compared.elapsed(), h.clock.now()) // it may have been set since
	if time.Now().Before(c.begins) {
		now = max(now, c.from)
	}
	unit := time.Duration(c.layout.Unit) * time.Millisecond
	b, ok := errors.AsType[*snowflake.BehindError](c.gen.CheckAt(now))
	if !ok || b.By <= max(c.maxAhead, unit)+unit {
		h.lag = lag{}
		h.alarms.clear(ClockBehind)
		return nil
	}
	if !h.lag.since.IsZero() {
		h.alarms.set(ClockBehind, fmt.Sprintf(behindText, b.By, fmt.Sprint("the IDs of number ", c.number), maxBehind))
	}
	if h.lag.left() > 0 {
		return nil
	}
	return fmt.Errorf("%w: by %v", errBehind, b.By)
}

// warnOfEnd raises an alarm years before the time field is full.
func (h *holder) warnOfEnd(now int64) {
	if l := h.claim.layout; l.EndsSoon(time.UnixMilli(now)) {
		h.alarms.set(TimeEnds, fmt.Sprintf("the time field of layout %s is full on %s: no snowflakes from then on; "+
			"plan a new layout in a namespace of its own, `natsid layout` helps", l, l.Ends().Format(time.DateTime)))
	}
}
