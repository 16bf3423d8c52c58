package lineage

import (
	"errors"
	"testing"
	"time"
)

var errTold = errors.New("told")

// Each transition from each state: what it ends in, and whether a load may begin then.
func TestTheMachineEndsAStopByAResumeAlone(t *testing.T) {
	now := time.Unix(1_000, 0)
	in := func(s State) *machine {
		m := &machine{state: s}
		if s == Sound {
			m.checked = now
		}
		if s == Stopping || s == Stopped {
			m.why = errTold
		}
		return m
	}
	for name, tc := range map[string]struct {
		do   func(*machine)
		want [4]State // from Unknown, Sound, Stopping, Stopped
	}{
		"checked": {func(m *machine) { m.checkedAt(now, 0, 0) }, [4]State{Sound, Sound, Stopping, Stopped}},
		"doubted": {(*machine).doubt, [4]State{Unknown, Unknown, Stopping, Stopped}},
		"checked, as it was before a doubt": {func(m *machine) { m.doubt(); m.checkedAt(now, 0, 0) },
			[4]State{Unknown, Unknown, Stopping, Stopped}},
		"stopped": {func(m *machine) { m.stop(errTold) }, [4]State{Stopping, Stopping, Stopping, Stopping}},
		"noted":   {(*machine).noted, [4]State{Unknown, Sound, Stopped, Stopped}},
		"resumed": {(*machine).resumed, [4]State{Unknown, Unknown, Unknown, Unknown}},
	} {
		for from, want := range tc.want {
			m := in(State(from))
			tc.do(m)
			if m.state != want {
				t.Errorf("%s: from %v to %v, want %v", name, State(from), m.state, want)
			}
			if stopped := want == Stopping || want == Stopped; m.isStopped() != stopped || (m.why != nil) != stopped {
				t.Errorf("%s: from %v: stopped is %t, since %v", name, State(from), m.isStopped(), m.why)
			}
			if m.soundAt(now, 0) != (want == Sound) || m.soundAt(now, 1) || m.soundAt(now.Add(fresh), 0) {
				t.Errorf("%s: from %v: a load may begin, or may not, or rests on an older connection or check",
					name, State(from))
			}
		}
	}
}

// A load that a stop overtakes, or that takes too long, is of no use; neither is one of an earlier era, though the
// registry is sound again.
func TestALoadCountsInTheEraInWhichItBegan(t *testing.T) {
	now := time.Unix(1_000, 0)
	m := machine{}
	m.checkedAt(now, 0, 0)
	p := m.pass()
	m.doubt() // the load began before
	if last := now.Add(fresh + writeTimeout - 1); !m.counts(p, last) || m.counts(p, last.Add(1)) {
		t.Error("a load counts for longer, or less long, than a check and a write may take")
	}
	m.stop(errTold)
	if m.counts(p, now) {
		t.Error("a load counts after a stop")
	}
	m.noted()
	m.resumed()
	m.checkedAt(now, 0, m.doubts)
	if m.counts(p, now) || !m.counts(m.pass(), now) {
		t.Error("a load counts in another era")
	}
}
