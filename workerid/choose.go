package workerid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// claim wins a number, trying again until ctx ends or, if it is the first one,
// the worker is refused.
func (k *Keeper) claim(ctx context.Context, first bool) (*claim, error) {
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second),
		backoff.WithRandomizationFactor(0), // chance is the keeper's own
		backoff.WithMaxElapsedTime(0))
	k.awaySince = time.Time{}
	var logged time.Time
	for {
		c, err := k.tryClaim(ctx)
		switch {
		case err == nil:
			k.alarms.clear(ClockSkew)
			k.alarms.clear(NumbersExhausted)
			return c, nil
		case ctx.Err() != nil, errors.Is(err, ErrDeployment) && first:
			return nil, err
		case errors.Is(err, ErrStateFile):
			k.dropFile(err)
		case errors.Is(err, errClock):
			k.alarms.set(ClockSkew, err.Error())
		case errors.Is(err, ErrExhausted):
			k.alarms.set(NumbersExhausted, err.Error())
		}
		k.mu.Lock()
		k.status.Trouble = err
		k.mu.Unlock()
		pause := pauses.NextBackOff()
		if w, ok := errors.AsType[*waitError](err); ok {
			pause = min(pause, w.atMost)
		}
		pause = pause/2 + time.Duration(k.rand.Int64N(int64(pause)))
		if time.Since(logged) > time.Minute { // the first failure, and one each minute
			logged = time.Now()
			k.cfg.Log.Warn("no worker number yet; trying again until there is one", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// A waitError says how soon to try again.
type waitError struct {
	error
	atMost time.Duration
}

func (e *waitError) Unwrap() error { return e.error }

// tryClaim wins a number: its own of before if it can be had, else a random
// one that is free. So nobody waits for a number. While the registry is away
// it can only go on with its own; a reply that was lost is not yet away.
func (k *Keeper) tryClaim(ctx context.Context) (*claim, error) {
	now, v, err := k.look(ctx)
	if away(err) {
		if k.awaySince.IsZero() {
			k.awaySince = time.Now()
		}
		if time.Since(k.awaySince) < awayAfter {
			return nil, &waitError{err, awayAfter / 4}
		}
		c, own := k.inherit(ctx)
		if c != nil {
			return c, nil
		}
		return nil, errors.Join(err, own)
	}
	k.awaySince = time.Time{}
	if err != nil {
		return nil, err
	}
	k.checked = now
	behind := time.Duration(k.lastReported(v)-now) * time.Millisecond
	if behind > k.cfg.MaxAhead {
		k.alarms.set(ClockBehind, fmt.Sprintf("the clock is %v behind this worker's last report: %s", behind, k.remedy(behind)))
		if !k.reclaims(behind) {
			return nil, &waitError{fmt.Errorf("%w: by %v", errBehind, behind), behind}
		}
	} else {
		k.alarms.clear(ClockBehind)
		if c := k.doubtful; c != nil && c.owns(v.records[c.number]) {
			return k.finish(ctx, now, c, v.records[c.number])
		}
		if c, err := k.reclaim(ctx, now, v); c != nil || err != nil {
			return c, err
		}
	}
	return k.takeAny(ctx, now, v)
}

// awayAfter is how long the registry must be out of reach before a worker
// goes on without it. After a crash the fence takes as long anyway.
const awayAfter = 2 * time.Second

// away reports whether err says that the registry could not be reached.
func away(err error) bool {
	return err != nil && !errors.Is(err, errClock) && !errors.Is(err, ErrDeployment) && !errors.Is(err, ErrStateFile)
}

var (
	// errTaken says that a number could not be won because somebody has it.
	errTaken = errors.New("workerid: the number is taken")
	// errMute says that it is not known whether somebody answers to a number.
	errMute = errors.New("workerid: asking who has the number failed")
)

// A view is what the registry knew a moment ago: enough to choose a number by.
type view struct {
	records map[int]Record
	leases  map[int]Heartbeat
}

// free reports whether number w seems to be nobody's at now, Unix ms.
func (v view) free(w int, now int64) bool {
	_, live := v.leases[w]
	return !live && v.records[w].Until <= now //mutant:free-number
}

// look compares the clock, checks that this worker may join the registry, and
// reads it. now is the reading of the clock that was compared.
func (k *Keeper) look(ctx context.Context) (now int64, v view, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*callTimeout)
	defer cancel()
	now, offset, err := k.check(ctx)
	if err != nil {
		return 0, view{}, err
	}
	mine := DeploymentOf(k.cfg.Layout)
	mine.ID = newToken()
	have, err := k.cfg.Registry.Deployment(ctx, mine)
	if err != nil {
		return 0, view{}, fmt.Errorf("workerid: deployment: %w", err)
	}
	if err := mine.check(have); err != nil {
		return 0, view{}, err
	}
	k.mu.Lock()
	k.status.Registry, k.status.Offset = have.ID, offset
	k.mu.Unlock()
	if err := k.settle(have); err != nil {
		return 0, view{}, err
	}
	if v.records, err = k.cfg.Registry.Records(ctx); err == nil {
		v.leases, err = k.cfg.Registry.Heartbeats(ctx)
	}
	return now, v, err
}

// settle makes the state file one of this deployment: what it remembers of
// another registry says nothing about this one.
func (k *Keeper) settle(d Deployment) error {
	if k.file == nil || k.file.Deployment == d && k.file.Instance == k.instance {
		return nil
	}
	return k.file.change(func(s *state) {
		if s.Deployment != d {
			*s = state{Deployment: d}
		}
		s.Instance = k.instance
	})
}

// lastReported returns the latest time that this worker is known to have
// read from its clock, Unix ms: from the newest record of its name, that
// number's heartbeat, and the fence of its state file.
func (k *Keeper) lastReported(v view) int64 {
	var newest Record
	last := k.fenced()
	for w, r := range v.records {
		if r.Instance == k.instance && r.Revision > newest.Revision {
			newest = r
			if l := v.leases[w]; l.Instance == k.instance {
				newest.Reported = max(r.Reported, l.Time)
			}
		}
	}
	return max(last, newest.Reported)
}

// fenced returns the time of the last fence in the state file, Unix ms; 0 if
// there is none.
func (k *Keeper) fenced() int64 {
	if k.file == nil || k.file.Claim == nil {
		return 0
	}
	return k.file.Claim.Fence - k.file.reach.Milliseconds()
}

// own returns the number that the state file remembers, if it is one that this
// worker may have.
func (k *Keeper) own() (w int, ok bool) {
	if k.file == nil || k.file.Number == nil {
		return 0, false
	}
	w = *k.file.Number
	first, count := k.cfg.Layout.Numbers(k.cfg.Site)
	return w, first <= w && w < first+count
}

// reclaim wins the number that the state file remembers, or returns nil.
//
// If the file has a claim, its last life crashed. While the record bears the
// claim's token the number is still this worker's, and it inherits the rest of
// its own window from the fence on: nothing beyond the fence was ever issued.
// If the file has none, the last life stopped cleanly, and its number is
// taken like any other.
func (k *Keeper) reclaim(ctx context.Context, now int64, v view) (c *claim, err error) {
	w, ok := k.own()
	if !ok || k.another {
		return nil, nil
	}
	r := v.records[w]
	switch last := k.file.Claim; {
	case last != nil && last.Token == r.Token: //mutant:resume
		c, err = k.win(ctx, now, w, r, max(last.Fence, now))
	// Its last ID may have run a little ahead of the clock.
	case last == nil && v.free(w, now+fenceReach.Milliseconds()):
		c, err = k.take(ctx, now, w, r)
	}
	if errors.Is(err, errTaken) || errors.Is(err, errMute) {
		return nil, nil
	}
	return c, err
}

// inherit goes on with the number of the last life while the registry is
// away: inside the rest of the window that the state file remembers, from the
// fence on, and nowhere else. Nobody else was ever given that: others begin
// where the record's window ends, and a clean stop, which lowers that, takes
// the claim out of the file first. It returns nil and why if it cannot.
func (k *Keeper) inherit(ctx context.Context) (*claim, error) {
	w, ok := k.own()
	if !ok || k.file.Claim == nil || DeploymentOf(k.cfg.Layout).check(k.file.Deployment) != nil {
		return nil, errors.New("workerid: the state file has no window to go on with")
	}
	last, now := k.file.Claim, k.cfg.Now()
	if behind := time.Duration(k.fenced()-now) * time.Millisecond; behind > k.cfg.MaxAhead {
		k.alarms.set(ClockBehind, fmt.Sprintf("the clock is %v behind the state file, and the registry away: waiting until either mends", behind))
		return nil, fmt.Errorf("%w: by %v", errBehind, behind)
	}
	from, until := max(last.Fence, now), last.Until //mutant:resume-unseen
	c := &claim{k: k, number: w, from: from, until: until, revision: last.Revision, token: last.Token}
	if c.from >= c.until {
		return nil, errors.New("workerid: the window in the state file has ended")
	}
	if err := k.ask(ctx, w); err != nil {
		return nil, err
	}
	k.checked = now // as far as can be told
	if err := c.open(now); err != nil {
		return nil, err
	}
	k.cfg.Log.Warn("the registry is away: going on with the own number until its window ends", "number", w, "until", time.UnixMilli(c.until).UTC())
	return c, nil
}

// maxMute is how many numbers are passed over because asking for them failed.
// A few may belong to workers that hang; more mean that asking itself fails.
const maxMute = 3

// takeAny wins a random number that is free.
func (k *Keeper) takeAny(ctx context.Context, now int64, v view) (*claim, error) {
	first, count := k.cfg.Layout.Numbers(k.cfg.Site)
	// All numbers in an order of chance: the count is a power of 2, so an odd
	// stride meets each once.
	start, stride := k.rand.IntN(count), k.rand.IntN(count)|1
	mute, frees := 0, maxExhausted
	for i := range count {
		w := first + (start+i*stride)&(count-1)
		if !v.free(w, now) {
			if wait := time.Duration(v.records[w].Until-now) * time.Millisecond; wait > 0 {
				frees = min(frees, wait)
			}
			continue
		}
		c, err := k.take(ctx, now, w, v.records[w])
		if errors.Is(err, errMute) && mute < maxMute {
			mute++
			continue
		}
		if !errors.Is(err, errTaken) {
			return c, err
		}
	}
	return nil, &waitError{fmt.Errorf("%w: all %d of them; `natsid workers` shows by whom and until when", ErrExhausted, count), frees}
}

// maxExhausted is the longest pause before looking again for a number, when
// none was free.
const maxExhausted = 2 * time.Second

// take wins a free number, whose record is r, from r.Until on.
func (k *Keeper) take(ctx context.Context, now int64, w int, r Record) (*claim, error) {
	return k.win(ctx, now, w, r, max(r.Until, now)) //mutant:acquire-from
}

// win makes number w this process's from the time from on, Unix ms, by
// replacing its record r, unless a worker answers to the number.
func (k *Keeper) win(ctx context.Context, now int64, w int, r Record, from int64) (*claim, error) {
	return k.finish(ctx, now, &claim{k: k, number: w, from: from, bare: r.Token == ""}, r)
}

// finish wins the number of claim c, whose record is r now. A claim that is in
// doubt after an error is kept, so that the next attempt goes on with it instead
// of blocking another number.
func (k *Keeper) finish(ctx context.Context, now int64, c *claim, r Record) (*claim, error) {
	k.doubtful = nil
	if err := k.ask(ctx, c.number); err != nil {
		return nil, err
	}
	c.revision = r.Revision
	err := c.write(ctx, now, max(r.Until, c.reaches(now)))
	if err == nil && c.bare { //mutant:absent-record
		now, err = c.afterLoss(ctx)
	}
	if err == nil {
		err = c.open(now)
	}
	switch {
	case errors.Is(err, errLost):
		return nil, errTaken
	case err == nil:
		return c, nil
	case errors.Is(err, errTaken), errors.Is(err, ErrStateFile): // a later life may believe the file
		return nil, err
	}
	k.doubtful = c
	return nil, err
}

// reaches returns how far a first window written at now reaches, Unix ms. Where
// there was no record it tells the next owner that this number may have been
// somebody's a moment ago.
func (c *claim) reaches(now int64) int64 {
	ahead := c.k.cfg.Horizon
	if c.bare {
		ahead = max(ahead, c.k.margin())
	}
	return now + ahead.Milliseconds()
}

// afterLoss makes a claim on a number without a record safe. There may be none
// because the registry lost its state, perhaps while this claim was being
// written: then the number may be somebody's, who answers to it, or was until a
// moment ago. It is used from a time on that no clock within the skew has
// reached, nor an ID that ran ahead of it. It returns the time of the clock,
// compared anew.
func (c *claim) afterLoss(ctx context.Context) (now int64, err error) {
	if now, _, err = c.k.check(ctx); err != nil {
		return 0, err
	}
	if err := c.k.ask(ctx, c.number); err != nil {
		return 0, err
	}
	c.from = max(c.from, now+c.k.margin().Milliseconds())
	return now, c.write(ctx, now, max(c.until, c.reaches(now)))
}

// ask returns nil if no other process answers to number w, errTaken if one
// does, whatever the records say (they may be new, and the process old), and
// errMute if that could not be found out.
func (k *Keeper) ask(ctx context.Context, w int) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	who, err := k.cfg.Registry.Ask(ctx, w)
	switch {
	case errors.Is(err, ErrNoWorker) || err == nil && who.Process == k.process:
		return nil
	case err == nil: //mutant:answered
		return fmt.Errorf("%w: %q answers to %d", errTaken, who.Instance, w)
	}
	return fmt.Errorf("%w: number %d: %w", errMute, w, err)
}
