package stage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/stage"
)

// stray publishes messages to the target that are not from a stage.
func (p *pair) stray(n int) {
	p.t.Helper()
	for range n {
		_, err := p.js.Publish(p.t.Context(), "stamped."+p.t.Name()+".x", nil)
		must(p.t, err)
	}
}

// remove removes messages of the target.
func (p *pair) remove(seqs ...uint64) {
	p.t.Helper()
	s, err := p.js.Stream(p.t.Context(), p.target)
	must(p.t, err)
	for _, seq := range seqs {
		must(p.t, s.DeleteMsg(p.t.Context(), seq))
	}
}

func (p *pair) stops(want string) {
	p.t.Helper()
	err := p.stage().Run(p.t.Context())
	if _, ok := errors.AsType[*stage.Stop](err); !ok || !strings.Contains(err.Error(), want) {
		p.t.Errorf("%v, want a Stop with %q", err, want)
	}
}

// One stray message cost a new target, with new IDs for all.
func TestAStageContinuesWhenForeignMessagesAreRemoved(t *testing.T) {
	for name, tc := range map[string]struct {
		before, strays int
		hint           bool
		command        string
	}{
		"one":             {10, 1, true, "Removed-one-to 11 -f`"},
		"several":         {10, 3, true, "seq 11 13"},
		"without a hint":  {10, 3, false, "seq 11 13"},
		"in a new target": {0, 2, false, "seq 1 2"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			p := newPair(t, tc.before)
			must(t, p.stage().Run(t.Context()))
			if !tc.hint {
				err := p.js.DeleteKeyValue(t.Context(), "stamp_test")
				if err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) {
					t.Fatal(err)
				}
			}
			p.stray(tc.strays)
			p.publish(tc.before, 20)
			for range 2 {
				p.stops(tc.command)
			}
			for i := range tc.strays {
				p.remove(uint64(tc.before + i + 1))
			}
			must(t, p.stage().Run(t.Context()))
			p.verify(20)
		})
	}
}

// Whether a message that nobody saw was a copy, only people know: if it was, its original is stamped again.
func TestARepairContinuesWhereMessagesAreGone(t *testing.T) {
	p := newPair(t, 10)
	if r, err := p.stage().Plan(t.Context()); err != nil || r.Last != 0 {
		t.Errorf("a sound target has the plan %+v, %v", r, err)
	}
	must(t, p.stage().Run(t.Context()))
	p.stray(3)
	p.remove(11, 13)
	p.publish(10, 20)
	p.stops("--repair")
	r, err := p.stage().Plan(t.Context())
	if err != nil || r.Last != 13 || r.After.Seq != 10 || r.Gone != 2 || len(r.Foreign) != 1 ||
		!strings.Contains(r.Remove("T"), "rmm T 12 ") {
		t.Fatalf("the plan is %+v, %v", r, err)
	}
	p.stops("--repair") // a plan changes nothing
	must(t, p.stage().Repair(t.Context(), r))
	must(t, p.stage().Run(t.Context()))
	p.remove(12)
	p.verify(20)
}

// Otherwise all would be stamped again.
func TestATargetWithoutAnyCopyIsNotRepaired(t *testing.T) {
	p := newPair(t, 10)
	must(t, p.stage().Run(t.Context()))
	s, err := p.js.Stream(t.Context(), p.target)
	must(t, err)
	must(t, s.Purge(t.Context()))
	must(t, p.js.DeleteKeyValue(t.Context(), "stamp_test"))
	if r, err := p.stage().Plan(t.Context()); err == nil || !strings.Contains(err.Error(), "copy to a new target") {
		t.Errorf("the plan is %+v, %v", r, err)
	}
}
