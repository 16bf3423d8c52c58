package lineage

import (
	"context"
	"errors"
	"testing"
)

// A registry that was never used gives way to another one at once, not at its next check: until that it would serve.
func TestARegistryThatGivesWayServesNothingFromThenOn(t *testing.T) {
	w := newWorld(1, options{noFaults: true}, nil)
	w.quiet = true
	a := w.procs[0]
	w.sound(t, a)
	a.member.checks.peers.cfg.Unused = func(context.Context) (bool, error) { return true, nil }
	var err error
	a.act(func(ctx context.Context) { err = a.member.checks.conflict(ctx, Notice{Registry: "other"}) })
	if !errors.Is(err, ErrStopped) || a.member.Stopped() == nil {
		t.Errorf("after it gave way it is stopped for %v, %v", a.member.Stopped(), err)
	}
}
