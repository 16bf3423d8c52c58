package lineage

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var errTold = errors.New("told")

// Each transition from each state: whether the registry is stopped after it, and whether a load may begin then.
func TestTheGateEndsAStopByAResumeAlone(t *testing.T) {
	const unknown, sound, stopped = 0, 1, 2
	for name, tc := range map[string]struct {
		do   func(*gate)
		want [3]int // from unknown, sound, stopped
	}{
		"checked": {func(g *gate) { _ = g.end(g.begin(false), true) }, [3]int{sound, sound, stopped}},
		"doubted": {(*gate).Doubt, [3]int{unknown, unknown, stopped}},
		"checked, as it was before a doubt": {func(g *gate) {
			a := g.begin(false)
			g.Doubt()
			_ = g.end(a, true)
		}, [3]int{unknown, unknown, stopped}},
		"stopped": {func(g *gate) { g.stop(errTold, false) }, [3]int{stopped, stopped, stopped}},
		"proved":  {func(g *gate) { g.WentBack("", 0) }, [3]int{stopped, stopped, stopped}},
		"resumed": {func(g *gate) { _ = g.end(g.begin(false), false) }, [3]int{sound, sound, sound}},
		"resumed, with a proof that no incident names": {func(g *gate) {
			g.proof = &finding{}
			_ = g.end(g.begin(false), false)
		}, [3]int{sound, sound, stopped}},
	} {
		for from, want := range tc.want {
			w := newWorld(1, options{noFaults: true}, nil)
			p := w.procs[0]
			g := p.member.gate
			switch from {
			case sound:
				_ = g.end(g.begin(false), false)
			case stopped:
				g.stop(errTold, false)
			}
			p.memory = make([]issue, 1)
			tc.do(g)
			if !p.held && want == stopped || p.memory != nil && strings.HasPrefix(name, "stopped") {
				t.Errorf("%s: from %d: IDs of before are issued, or loaded", name, from)
			}
			if _, isOpen, why := g.passes(g.doubted()); isOpen != (want == sound) || (why != nil) != (want == stopped) {
				t.Errorf("%s: from %d: open is %t, stopped for %v, want %d", name, from, isOpen, why, want)
			}
			if w.now += fresh; g.isSound(fresh) || g.isSound(2*fresh) != (want == sound) {
				t.Errorf("%s: from %d: a load rests on an older check, or another one may not", name, from)
			}
			links := uint64(1)
			if g.cfg.Links = func() uint64 { return links }; g.isSound(2*fresh) || g.Checked() {
				t.Errorf("%s: from %d: a load rests on an older connection", name, from)
			}
		}
	}
}

// A load that a stop overtakes, or that takes too long, is of no use; neither is one of an earlier era, though the
// registry is sound again.
func TestALoadCountsInTheEraInWhichItBegan(t *testing.T) {
	w := newWorld(1, options{noFaults: true}, nil)
	g := w.procs[0].member.gate
	began := w.now
	_ = g.end(g.begin(false), false)
	p, _, _ := g.passes(g.doubted())
	g.Doubt() // the load began before
	w.now = began + fresh + writeTimeout - time.Millisecond
	if g.counts(p) != nil {
		t.Error("a load counts less long than a check and a write may take")
	}
	if w.now += time.Millisecond; g.counts(p) == nil {
		t.Error("a load counts for longer than a check and a write may take")
	}
	w.now = began
	if g.stop(errTold, false); !errors.Is(g.counts(p), errTold) {
		t.Error("a load counts after a stop")
	}
	_ = g.end(g.begin(false), false)
	if later, _, _ := g.passes(g.doubted()); g.counts(p) == nil || g.counts(later) != nil {
		t.Error("a load counts in another era")
	}
}

// Messages of anyone raise doubts, and programs look at the registry, perhaps all the time.
func TestDoubtsAndLooksKeepNoLoadWaiting(t *testing.T) {
	w, a, _, _ := calm(1)
	w.sound(t, a)
	g := a.member.gate
	g.Doubt()
	requested := g.doubted()
	check := g.begin(false)
	g.Doubt()
	_ = g.end(check, false)
	opens := func(doubts int) bool {
		_, isOpen, _ := g.passes(doubts)
		return isOpen
	}
	if !opens(requested) || opens(requested+1) {
		t.Error("a load waits for a check without a doubt, or rests on one that began before a doubt before the load")
	}
	if w.now += fresh; opens(requested) {
		t.Error("a load that waited rests on an older check")
	}
	w.now -= fresh
	links := g.cfg.Links() + 1
	if g.cfg.Links = func() uint64 { return links }; opens(requested) {
		t.Error("a load that waited rests on a check of an earlier connection")
	}
	_ = a.check(t.Context(), false)
	began := g.sound.began
	look := encode(call{Op: opLook, From: Notice{Process: "p"}})
	w.now += fresh - time.Millisecond
	if a.member.Answer(t.Context(), look) == nil || g.sound.began != began || !g.isSound(fresh) {
		t.Error("a look makes the worker check")
	}
	if w.now += time.Millisecond; a.member.Answer(t.Context(), look) == nil || g.sound.began == began {
		t.Error("an answer rests on an old check")
	}
}
