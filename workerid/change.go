package workerid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// A Changeable is a [Registry] whose deployment can be replaced.
type Changeable interface {
	Registry
	// Replace replaces the deployment if it is old, or returns [ErrConflict].
	Replace(ctx context.Context, old, d Deployment) error
}

// ErrInUse is returned when the layout cannot be changed since a worker is alive,
// or was a moment ago.
var ErrInUse = errors.New("workerid: a worker is alive")

// ErrNotAbove is returned when IDs of a new layout may equal those of the old one.
var ErrNotAbove = errors.New("workerid: the new IDs would not all be above the old ones")

// ErrOvertaken is returned when another operator was faster.
var ErrOvertaken = errors.New("workerid: the layout was changed meanwhile")

// A Change is what [ChangeLayout] did or would do.
type Change struct {
	Old, New Deployment
	Records  int   // of worker numbers
	Above    int64 // all old IDs are below it
	Lowest   int64 // no new ID is below it
	Epoch    int64 // the latest that works with the new layout, Unix ms; below 0 if none does
}

// ChangeLayout gives the registry another layout or epoch, if that repeats no ID:
// all new IDs must be above all old ones. Two layouts give equal IDs at times
// far apart, so it is not enough that the old workers have stopped.
//
// The old IDs are below the first ID of the tick at the latest until of all
// records. New windows begin at Deployment.From: not before that until, nor
// before now. Every record gets a fresh token first, so that no old owner can
// extend its window. An old worker that wins a number meanwhile reads the new
// deployment after its write, or wrote before this change: then its record is
// refused here, and by every worker that starts.
//
// Unless do is set it only looks. The error wraps [ErrInUse], [ErrNotAbove],
// [ErrDamaged], [ErrOvertaken], or is that of a call.
func ChangeLayout(ctx context.Context, r Changeable, to snowflake.Layout, do bool) (Change, error) {
	if err := to.Validate(); err != nil {
		return Change{}, err
	}
	have, err := r.Deployment(ctx)
	if err != nil {
		return Change{}, err
	}
	records, now, err := lookAround(ctx, r)
	if err != nil {
		return Change{}, err
	}
	c, err := plan(have, to, records, now)
	if err != nil || !do {
		return c, err
	}
	if err = retire(ctx, r, records); err == nil {
		err = r.Replace(ctx, have, c.New)
	}
	if err != nil {
		return c, c.unmade(ctx, r, err)
	}
	return c, c.confirm(ctx, r)
}

// unmade returns why the change that ended with err was not made: of two operators
// at once, one finds what the other has made, or is making.
func (c Change) unmade(ctx context.Context, r Registry, err error) error {
	have, again := r.Deployment(ctx)
	switch {
	case again != nil:
		return fmt.Errorf("%w; whether it was changed is not known: look with `natsid registry`, then repeat the "+
			"command: %w", err, again)
	case have != c.Old:
		return fmt.Errorf("%w, by another operator or by a write whose answer was lost, to layout %s with epoch %d: "+
			"if that is not what you want, repeat the command", ErrOvertaken, have.Layout, have.Epoch)
	case errors.Is(err, ErrConflict):
		return fmt.Errorf("%w: another operator changes the layout now, or a worker is alive; nothing is changed yet: "+
			"make sure that all workers are stopped, then repeat the command", ErrInUse)
	}
	return fmt.Errorf("%w; nothing is changed yet: repeat the command", err)
}

// lookAround returns the records and the registry's time, if no worker is alive.
func lookAround(ctx context.Context, r Registry) (records map[int]Record, now int64, err error) {
	if records, err = r.Records(ctx); err != nil {
		return nil, 0, err
	}
	if now, err = r.Time(ctx); err != nil {
		return nil, 0, err
	}
	beats, err := r.Heartbeats(ctx)
	if err != nil {
		return nil, 0, err
	}
	for w, h := range beats {
		return nil, 0, fmt.Errorf("%w: %q sent a heartbeat for number %d %v ago; stop all workers with SIGTERM, "+
			"and wait until the heartbeats of killed ones have expired",
			ErrInUse, h.Instance, w, time.Duration(now-h.At)*time.Millisecond)
	}
	for w, rec := range records {
		if rec.Damaged {
			return nil, 0, fmt.Errorf("%w: the record of number %d", ErrDamaged, w)
		}
		who, err := r.Ask(ctx, w)
		if errors.Is(err, ErrBystander) {
			return nil, 0, fmt.Errorf("%w, or may be: %w; end that subscription, or take the subjects of worker "+
				"numbers out of that stream, until the layout is changed", ErrInUse, err)
		}
		if !errors.Is(err, ErrNoWorker) {
			return nil, 0, fmt.Errorf("%w, or may be: number %d is answered for by %q (%v); stop all workers",
				ErrInUse, w, who.Instance, err)
		}
	}
	return records, now, nil
}

// plan returns the change, and ErrNotAbove if it would repeat IDs.
func plan(have Deployment, to snowflake.Layout, records map[int]Record, now int64) (Change, error) {
	c := Change{Old: have, New: DeploymentOf(to), Records: len(records)}
	c.New.ID, c.New.From = have.ID, now
	for _, r := range records {
		c.New.From = max(c.New.From, r.Until)
	}
	if err := c.bound(records); err != nil {
		return c, err
	}
	c.Lowest = to.Lowest(c.New.From)
	c.Epoch = -1
	if ticks := c.Above>>(to.Bits()-to.Time) + 1; ticks <= c.New.From/to.Unit {
		c.Epoch = c.New.From - ticks*to.Unit
	}
	if c.Lowest < c.Above || c.New.From >= to.Ends().UnixMilli() {
		return c, ErrNotAbove
	}
	return c, nil
}

// bound sets what all old IDs are below: those of the present layout, and of
// those before it.
func (c *Change) bound(records map[int]Record) error {
	c.Above = 0
	for w, r := range records {
		old, err := r.Deployment.layout()
		if err != nil {
			return fmt.Errorf("the layout of number %d: %w", w, err)
		}
		c.Above = max(c.Above, old.Lowest(r.Until))
	}
	return nil
}

// retire gives each record a fresh token.
func retire(ctx context.Context, r Registry, records map[int]Record) error {
	for w, rec := range records {
		rec.Token = newToken()
		if _, err := r.Write(ctx, w, rec); err != nil {
			return fmt.Errorf("the record of number %d: %w", w, err)
		}
	}
	return nil
}

// confirm reads the records once more, and puts the old deployment back if a
// worker extended one beyond what the change allows.
func (c Change) confirm(ctx context.Context, r Changeable) error {
	records, err := r.Records(ctx)
	if err != nil {
		return err
	}
	if err := checkRecords(c.New, records); err != nil {
		return fmt.Errorf("%w: a worker of the old layout acquired a number meanwhile; the old layout is put back "+
			"(%v): %w", ErrInUse, r.Replace(ctx, c.New, c.Old), err)
	}
	return nil
}
