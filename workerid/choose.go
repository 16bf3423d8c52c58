package workerid

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// claim wins a number, trying again until ctx ends or, if it is the first one,
// the worker is refused.
func (k *Keeper) claim(ctx context.Context, first bool) (*claim, error) {
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second),
		backoff.WithMaxElapsedTime(0))
	attempt := func() (*claim, error) {
		c, err := k.tryClaim(ctx)
		switch {
		case errors.Is(err, ErrDeployment) && first:
			return nil, backoff.Permanent(err)
		case errors.Is(err, ErrStateFile):
			// Issue without local state rather than not at all: after a crash
			// another number is taken.
			k.cfg.Log.Error("going on without a state file", "error", err)
			k.file = nil
		}
		return c, err
	}
	return backoff.RetryNotifyWithData(attempt, backoff.WithContext(pauses, ctx), func(err error, pause time.Duration) {
		k.mu.Lock()
		k.status.Trouble = err
		k.mu.Unlock()
		k.cfg.Log.Warn("no worker number yet", "error", err, "retry", pause.Round(time.Millisecond))
	})
}

// tryClaim wins a number: its own of before if it can be had, else a random
// one that is free. So nobody waits for a number.
func (k *Keeper) tryClaim(ctx context.Context) (*claim, error) {
	view, err := k.look(ctx)
	if err != nil {
		return nil, err
	}
	if c, err := k.reclaim(ctx, view); c != nil || errors.Is(err, ErrStateFile) {
		return c, err
	}
	mute := 0
	for _, w := range rand.Perm(k.cfg.Layout.Workers()) {
		if !view.free(w, k.cfg.Now()) {
			continue
		}
		c, err := k.take(ctx, w, view.records[w])
		if errors.Is(err, errMute) && mute < maxMute {
			mute++
			continue
		}
		if !errors.Is(err, errTaken) {
			return c, err
		}
	}
	return nil, fmt.Errorf("%w: all %d of them", ErrExhausted, k.cfg.Layout.Workers())
}

var (
	// errTaken says that a number could not be won because somebody has it.
	errTaken = errors.New("workerid: the number is taken")
	// errMute says that it is not known whether somebody answers to a number.
	errMute = errors.New("workerid: asking who has the number failed")
)

// maxMute is how many numbers are passed over because asking for them failed.
// A few may belong to workers that hang; more mean that asking itself fails.
const maxMute = 3

// A view is what the registry knew a moment ago: enough to choose a number by.
type view struct {
	records map[int]Record
	leases  map[int]Lease
}

// free reports whether number w seems to be nobody's at now, Unix ms.
func (v view) free(w int, now int64) bool {
	_, live := v.leases[w]
	return !live && v.records[w].Until <= now
}

// look checks that this worker may join the registry, and reads it.
func (k *Keeper) look(ctx context.Context) (v view, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*callTimeout)
	defer cancel()
	mine := DeploymentOf(k.cfg.Layout)
	mine.ID = newToken()
	have, err := k.cfg.Registry.Deployment(ctx, mine)
	if err != nil {
		return view{}, fmt.Errorf("workerid: deployment: %w", err)
	}
	if err := mine.check(have); err != nil {
		return view{}, err
	}
	k.mu.Lock()
	k.status.Registry = have.ID
	k.mu.Unlock()
	if err := k.settle(have); err != nil {
		return view{}, err
	}
	if v.records, err = k.cfg.Registry.Records(ctx); err == nil {
		v.leases, err = k.cfg.Registry.Leases(ctx)
	}
	return v, err
}

// settle makes the state file one of this deployment: what it remembers of
// another registry says nothing about this one.
func (k *Keeper) settle(d Deployment) error {
	return k.file.change(func(s *state) {
		if s.Deployment != d {
			*s = state{Deployment: d}
		}
		s.Instance = k.instance
	})
}

// reclaim wins the number that the state file remembers, or returns nil.
//
// If the file has a claim, its last life crashed. While the record bears the
// claim's token the number is still this worker's, and it inherits the rest of
// its own window from the fence on: nothing beyond the fence was ever issued.
// If the file has none, the last life stopped cleanly, and its number is
// taken like any other.
func (k *Keeper) reclaim(ctx context.Context, v view) (*claim, error) {
	if k.file == nil || k.file.Number == nil {
		return nil, nil
	}
	w, old := *k.file.Number, k.file.Claim
	r, now := v.records[w], k.cfg.Now()
	if old == nil {
		// Its last ID may have run a little ahead of the clock.
		if !v.free(w, now+fenceReach.Milliseconds()) {
			return nil, nil
		}
		return k.take(ctx, w, r)
	}
	// A clock behind the last life's reports, or far behind its fence, was set
	// back, maybe with the whole machine and this file; or it had been wrong.
	// Another number costs nothing, and need not wait.
	setBack := now < max(r.Reported, v.leases[w].Time) || now+2*fenceReach.Milliseconds() < old.Fence
	if r.Token != old.Token || setBack {
		return nil, nil
	}
	return k.win(ctx, w, r, max(old.Fence, now))
}

// take wins a free number, whose record is r, from r.Until on.
func (k *Keeper) take(ctx context.Context, w int, r Record) (*claim, error) {
	from := max(r.Until, k.cfg.Now())
	if r.Token == "" {
		from = k.cfg.Now() + k.cfg.MaxClockSkew.Milliseconds()
	}
	return k.win(ctx, w, r, from)
}

// win makes number w this process's from the time from on, Unix ms, by
// replacing its record r, unless a worker answers to the number.
func (k *Keeper) win(ctx context.Context, w int, r Record, from int64) (*claim, error) {
	if err := k.ask(ctx, w); err != nil {
		return nil, err
	}
	c := &claim{k: k, number: w, from: from}
	err := c.win(ctx, r)
	if errors.Is(err, errLost) {
		return nil, errTaken
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// ask returns nil if no other process answers to number w, errTaken if one
// does, whatever the records say (they may be new, and the process old), and
// errMute if that could not be found out.
func (k *Keeper) ask(ctx context.Context, w int) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	who, err := k.cfg.Registry.Ask(ctx, w)
	switch {
	case errors.Is(err, ErrNobody) || err == nil && who.Process == k.process:
		return nil
	case err == nil:
		return fmt.Errorf("%w: %q answers to %d", errTaken, who.Instance, w)
	}
	return fmt.Errorf("%w: number %d: %w", errMute, w, err)
}
