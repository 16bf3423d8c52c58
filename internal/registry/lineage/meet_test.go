package lineage

import (
	"context"
	"errors"
	"testing"

	"github.com/natsid/natsid/internal/registry/era"
)

// A registry that was never used stops at once, not at its next check: until that it would serve. All of its workers
// say so, and no other registry stops for it.
func TestARegistryThatWasNeverUsedStopsAloneForAnotherOne(t *testing.T) {
	w, a, b, _ := calm(1)
	w.sound(t, a, b)
	a.member.checks.cfg.Unused = func(context.Context) (bool, error) { return true, nil }
	if err := a.member.checks.conflict(context.Background(), "other"); err != nil || a.member.Stopped() == nil {
		t.Fatalf("it is stopped for %v, %v", a.member.Stopped(), err)
	}
	if err := b.check(context.Background(), false); !errors.Is(err, ErrStopped) {
		t.Errorf("another worker: %v", err)
	}
	other := era.Found("kv", at(0))
	if n := b.member.Notice(); !n.Unused || n.Other != "other" || !isHarmless(other, n) {
		t.Errorf("it says %+v", n)
	}
	w.resumed(t, a, b)
	w.sound(t, a, b)
	if n := b.member.Notice(); isHarmless(other, n) {
		t.Errorf("resumed, it says %+v", n)
	}
}

// The operator keeps another registry: this one stops, snowflakes included, in whichever incident it is. It is harmless
// once it is merged into the other one, until it is resumed itself.
func TestARegistryIsStoppedForTheOneThatIsKept(t *testing.T) {
	for _, wentBack := range []bool{false, true} {
		w, a, b, _ := calm(1)
		w.sound(t, a, b)
		if wentBack {
			a.member.WentBack("told", 40)
			_ = a.check(context.Background(), false)
		}
		for range 2 {
			if err := a.member.checks.stopFor(context.Background(), "other"); err != nil {
				t.Fatal(err)
			}
		}
		_ = b.check(context.Background(), false)
		in := b.member.Identity().Incident
		if _, all := ofIncident(in); !all || in.Other != "other" || (in.Need == 40) != wentBack || len(in.Prior) > 1 {
			t.Errorf("%t: the incident is %+v", wentBack, in)
		}
		other, n := era.Found("kv", at(0)), b.member.Notice()
		if isHarmless(other, n) || !isHarmless(other.Merge(n.Registry, nil), n) {
			t.Errorf("%t: it says %+v", wentBack, n)
		}
		w.resumed(t, a, b)
		w.sound(t, a, b)
		if n := b.member.Notice(); isHarmless(other.Merge(n.Registry, nil), n) {
			t.Errorf("%t: resumed, it says %+v", wentBack, n)
		}
	}
	w := newWorld(1, options{noFaults: true}, nil)
	a := w.procs[0]
	w.sound(t, a)
	for _, keep := range []string{"", "a b", a.member.Identity().Registry} {
		if err := a.member.checks.stopFor(context.Background(), keep); err == nil || a.member.Stopped() != nil {
			t.Errorf("it is stopped for %q", keep)
		}
	}
}
