package oneregistry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// List returns the registries whose workers answer, one notice of each.
func List(ctx context.Context, bus Bus) (all []Notice, err error) {
	err = ask(ctx, bus, call{Op: opState}, func(n Notice) bool {
		if !slices.ContainsFunc(all, func(o Notice) bool { return o.ID == n.ID }) {
			all = append(all, n)
		}
		return true
	})
	slices.SortFunc(all, func(a, b Notice) int { return cmp.Compare(a.ID, b.ID) })
	return all, err
}

// ErrNobody is returned when no worker answers at all.
var ErrNobody = errors.New("no worker answers")

// ErrUnknown is returned when no worker of a registry answers, but workers of others do.
var ErrUnknown = errors.New("no such registry")

// Adopt makes the registry id the one that serves: all others that answer yield to it and merge their marks, and only
// then does it serve. With force it serves although the one that it had yielded to does not answer.
func Adopt(ctx context.Context, bus Bus, id string, force bool) error {
	all, err := List(ctx, bus)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(n Notice) bool { return n.Is(id) })
	if len(all) == 0 {
		return fmt.Errorf("%w: check --nats and --namespace", ErrNobody)
	}
	if at < 0 {
		return fmt.Errorf("%w as %s answers: `natsid registry` lists those that do", ErrUnknown, id)
	}
	target := all[at]
	for _, n := range slices.Delete(all, at, at+1) {
		if err := yieldAndMerge(ctx, bus, n, target.ID); err != nil {
			return fmt.Errorf("registry %s: %w", n.ID, err)
		}
	}
	if target.serves() {
		return nil
	}
	_, err = send(ctx, bus, target.ID, call{Op: opStay, Force: force})
	return err
}

// yieldAndMerge makes a registry yield, and returns once its marks are merged.
func yieldAndMerge(ctx context.Context, bus Bus, n Notice, to string) error {
	if n.Yields != to {
		if _, err := send(ctx, bus, n.ID, call{Op: opYield, To: to}); err != nil {
			return err
		}
	}
	for {
		r, err := send(ctx, bus, n.ID, call{Op: opState})
		if err == nil && r.Notice.Yields == to && r.Notice.Merged {
			return nil
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(errors.New("its marks are not merged yet; it serves nothing, and continues to merge: "+
				"repeat the command"), err)
		}
	}
}

// Release makes every registry that has yielded to one that does not answer any more serve again, and returns which.
func Release(ctx context.Context, bus Bus) (released []string, err error) {
	all, err := List(ctx, bus)
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		if n.serves() {
			continue
		}
		if _, err := send(ctx, bus, n.ID, call{Op: opRelease}); err != nil {
			return released, fmt.Errorf("registry %s: %w", n.ID, err)
		}
		released = append(released, n.ID)
	}
	return released, nil
}
