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

// A holder holds one claim: it sends heartbeats, moves the fence and watches
// the clock, until the claim ends.
//
// A heartbeat comes every 3 s, or six times a horizon if that is more often. It
// comes at once after a step of the clock beyond the tolerance, but that is once in
// hastyEach: a clock that jitters must not multiply the calls. It comes soon, too,
// while the record was not read again yet. It does four things in this order, and
// stops at the first that fails: it compares the clock and the deployment, it
// renews the claim or reads its record, and it puts the worker's heartbeat into
// the registry. Nothing is written by a clock that was not compared.
//
// While all is well and the window needs no renewal, a heartbeat does at once what follows the
// comparison of the clock. Two of three are brief then: without comparing the clock, which was not
// set, and the deployment. No window grows in either, so none does under a deployment or by a clock
// that was not just compared. The first law rests on that, and on the record, which every heartbeat
// reads.
//
// A heartbeat that renewed the claim puts nothing more, if the one before did: a
// write of each worker in each turn is what the registry has to take. Heartbeats
// expire after many turns and restrict no worker.
type holder struct {
	claim    *claim
	clock    *clock
	alarms   *alarms
	life     *lifecycle
	policy   behindPolicy
	interval time.Duration // between heartbeats
	watch    time.Duration // between looks at the clock
	deadline time.Duration // how long requests may wait for the clock
	log      *slog.Logger

	unread int       // heartbeats so far that left the record unread
	hasty  time.Time // when the last heartbeat came at once
	whole  time.Time // when the last heartbeat that was not brief found all well; zero if another failed since
	waits  bool      // the number is not used yet
	put    bool      // the last heartbeat was put into the registry
}

const (
	// minRest is the pause after the first heartbeat that left the record unread.
	minRest = 500 * time.Millisecond
	// hastyEach is the shortest time between two heartbeats that come at once.
	hastyEach = time.Second
)

// hold holds the claim until ctx ends, which is not an error, or until it must be
// given up: errLost, errEnded, errBehind, [ErrDeployment] or [ErrStateFile].
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
		h.rest(ctx)
	}
	if err := context.Cause(ctx); errors.Is(err, ErrStateFile) {
		return err
	}
	return nil
}

// retryFile makes a state file that had failed hold the claim again, after a
// heartbeat in order, and reports whether it does. The error is [ErrStateFile].
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

// keepFence keeps the fence ahead of the clock until ctx ends, except while
// suspended, since the clock may be wrong. It does not wait for the registry,
// whose calls may hang. The error is [ErrStateFile].
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

// rest waits until the next heartbeat is due. It ends early if the clock was set
// far, so that it is compared at once.
func (h *holder) rest(ctx context.Context) {
	due, far := time.Now().Add(h.interval), false
	if !h.claim.rechecked {
		due = time.Now().Add(min(minRest<<min(h.unread, 16), h.interval))
		h.unread++
	}
	tick := time.NewTicker(min(h.watch, h.interval))
	defer tick.Stop()
	for time.Now().Before(due) && wait(ctx, tick) {
		now := h.clock.now() // read first: a clock that is set from here on was set, and is not behind
		if far = h.clock.setFar(h.deadline) || far; far && time.Since(h.hasty) > hastyEach {
			h.hasty = time.Now()
			return
		}
		h.behind(now)
		h.begun()
	}
}

// begun ends the trouble that the number is not used yet.
func (h *holder) begun() {
	if h.waits && h.early() == nil {
		h.waits = false
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
		h.whole = time.Time{}
		h.beatUncompared(ctx, r, err)
		h.behind(h.clock.now())
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

// steady reports whether a heartbeat that was not brief found all well a while ago, and none failed since.
func (h *holder) steady(while time.Duration) bool {
	return !h.whole.IsZero() && time.Since(h.whole) <= while && h.life.phase() == issuing
}

// brief reports whether this heartbeat is brief, and returns what stands for the
// comparison then.
func (h *holder) brief() (r reading, ok bool) {
	if !h.steady(h.interval * 5 / 2) {
		return reading{}, false
	}
	r, ok = h.clock.still(h.claim.compared)
	return r, ok && !h.claim.isDue(r.now)
}

// renewAs renews the claim and puts the heartbeat with the clock as it was compared.
func (h *holder) renewAs(ctx context.Context, r reading, brief bool) error {
	h.claim.compared = r
	trouble, fatal := h.renewAndReport(ctx, brief)
	if fatal != nil {
		return fatal
	}
	switch {
	case trouble != nil:
		h.whole = time.Time{}
	case !brief:
		h.whole = r.at
	}
	h.life.becomeIssuing(h.claim)
	h.life.note(func(s *Status) { s.Offset = r.offset })
	h.trouble(ctx, trouble)
	if d := h.behind(h.clock.now()); h.policy.another(d) {
		return fmt.Errorf("%w: by %v", errBehind, d)
	}
	return nil
}

// beatUncompared is a heartbeat whose clock could not be compared, or was found
// wrong, as why says: it writes nothing. A claim that was resumed while the
// registry is away issues within the window that it had. One that was won
// issues nothing before its record has been read again: the registry may have
// lost it before this worker began to answer for the number.
func (h *holder) beatUncompared(ctx context.Context, r reading, why error) {
	h.claim.rechecked = h.claim.rechecked || h.claim.away
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

// renewAndReport renews the claim and puts the heartbeat.
// A trouble lets the claim live on; a fatal error ends it. A claim that was resumed while
// the registry is away issues though its record cannot be read: see beatUncompared.
func (h *holder) renewAndReport(ctx context.Context, brief bool) (trouble, fatal error) {
	before := h.claim.until.Load()
	var err, unput error
	together := brief || h.steady(h.interval*4) && !h.claim.isDue(h.claim.compared.now)
	if together {
		unput, err = h.together(ctx, brief)
	} else {
		err = h.claim.sameDeployment(ctx, h.log) //mutant:deployment-held
		if err == nil {
			err = h.claim.renew(ctx)
		}
	}
	h.life.note(func(s *Status) { s.Until = h.claim.until.Load() })
	if ends(err) {
		return nil, err
	}
	if refused(err) {
		h.alarms.set(RegistryConflict, err.Error())
	}
	if err != nil {
		h.claim.rechecked = h.claim.rechecked || h.claim.away && away(err)
		return fmt.Errorf("workerid: the window of number %d was not renewed: %w", h.claim.number, err), nil
	}
	h.alarms.clear(RegistryConflict)
	h.claim.rechecked = true
	if h.put && h.claim.until.Load() != before {
		h.put = false
		return nil, nil
	}
	if !together {
		unput = h.claim.heartbeat(ctx)
	}
	if h.put = unput == nil; unput != nil {
		return fmt.Errorf("workerid: the heartbeat of number %d was not put, and its window goes on: %w",
			h.claim.number, unput), nil
	}
	return nil, nil
}

// together puts the heartbeat, reads the record and, unless it is brief, the deployment, all at once. It writes no
// record: one that bears the token of a write that was not acknowledged is trouble, so that the next heartbeat, which
// is not steady, renews it.
func (h *holder) together(ctx context.Context, brief bool) (unput, err error) {
	var calls sync.WaitGroup
	var other error
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	calls.Go(func() { unput = h.claim.heartbeat(ctx) })
	if !brief {
		calls.Go(func() {
			if other = h.claim.sameDeployment(ctx, h.log); ends(other) { //mutant:deployment-together
				stop()
			}
		})
	}
	token, err := h.claim.recheck(ctx) //mutant:reread-together
	if ends(err) {                     //mutant:closed-late
		stop() // nothing comes before the generator is closed
	}
	calls.Wait()
	switch {
	case other != nil && !ends(err):
		err = other
	case err == nil && token != h.claim.token:
		err = errors.New("workerid: the record is of a write that was not acknowledged")
	}
	return unput, err
}

// ends reports whether a claim ends with err.
func ends(err error) bool {
	return errors.Is(err, errLost) || errors.Is(err, errEnded) || errors.Is(err, ErrDeployment) ||
		errors.Is(err, ErrStateFile)
}

// trouble notes why the heartbeat failed, or why the number is not used yet; nil if
// all is well. The first failure in a row is logged.
func (h *holder) trouble(ctx context.Context, err error) {
	known, early := false, h.early()
	h.life.note(func(s *Status) {
		known = s.Trouble != nil && !errors.Is(s.Trouble, errEarly)
		if s.Trouble = err; err == nil {
			s.Trouble = early
		}
	})
	h.waits = early != nil
	if err != nil && !known && ctx.Err() == nil {
		h.log.Warn("a heartbeat failed: snowflakes are issued until the window of the worker number ends, "+
			"if the clock is right; check NATS and the clock",
			"number", h.claim.number, "until", time.UnixMilli(h.claim.until.Load()).UTC(), "error", err)
	}
}

// early returns errEarly, and from when on the number is used, before that.
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

// behind returns by how much the clock must advance from now before the generator
// issues again; 0 if requests can wait for that. A clock that has yet to reach the window
// of a new claim is not behind, since it was not set back. Nor is that of a
// suspended worker, since it may be wrong.
func (h *holder) behind(now int64) time.Duration {
	if time.Now().Before(h.claim.begins) {
		now = max(now, h.claim.from)
	}
	b, ok := errors.AsType[*snowflake.BehindError](h.claim.gen.CheckAt(now))
	burst := time.Duration(h.claim.layout.Unit) * time.Millisecond // puts the generator a tick ahead, and no more
	if h.life.phase() == suspended || !ok || b.By < h.deadline || b.By <= burst {
		h.alarms.clear(ClockBehind)
		return 0
	}
	h.alarms.set(ClockBehind, fmt.Sprintf("the clock is %v behind the IDs issued under number %d: %s",
		b.By, h.claim.number, h.policy.remedy(b.By)))
	return b.By
}

// warnOfEnd raises an alarm years before the time field is full.
func (h *holder) warnOfEnd(now int64) {
	if l := h.claim.layout; l.EndsSoon(time.UnixMilli(now)) {
		h.alarms.set(TimeEnds, fmt.Sprintf("the time field of layout %s is full on %s: no snowflakes from then on; "+
			"plan a new layout in a namespace of its own, `natsid layout` helps", l, l.Ends().Format(time.DateTime)))
	}
}
