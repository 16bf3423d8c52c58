package stage_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
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
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	wantStop(p.t, p.stage().Run(ctx), want)
}

func (p *pair) forgets() {
	p.t.Helper()
	err := p.js.DeleteKeyValue(p.t.Context(), "stamp_test")
	if err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) {
		p.t.Fatal(err)
	}
}

// One stray message cost a new target, with new IDs for all. Whether a message that is gone was a copy, only people
// know: if it was, its original is stamped again.
func TestARepairContinuesAfterForeignMessages(t *testing.T) {
	for name, tc := range map[string]struct {
		before, strays int
		hint           bool
		removed        []uint64 // before the repair
		want           string
		foreign, gone  uint64
	}{
		"one":             {10, 1, true, nil, "not from a stage", 1, 0},
		"without a hint":  {10, 3, false, nil, "not from a stage", 3, 0},
		"a removed one":   {10, 1, true, []uint64{11}, "was removed", 0, 1},
		"removed ones":    {10, 3, false, []uint64{11, 13}, "was removed", 1, 2},
		"removed copies":  {10, 2, true, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, "has expired", 0, 2},
		"in a new target": {0, 2, false, nil, "not from a stage", 2, 0},
		"many":            {10, 1500, false, nil, "not from a stage", 1500, 0},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			p := newPair(t, tc.before)
			must(t, p.stage().Run(t.Context()))
			if !tc.hint {
				p.forgets()
			}
			p.stray(tc.strays)
			p.remove(tc.removed...)
			p.publish(tc.before, 20)
			p.stops(tc.want)
			r, err := p.stage().Status(t.Context())
			if err != nil || r.Last != uint64(tc.before+tc.strays) || r.Position.Seq != uint64(tc.before) ||
				r.Foreign != tc.foreign || r.Gone != tc.gone {
				t.Fatalf("the status is %+v, %v", r, err)
			}
			p.stops(tc.want) // a status changes nothing
			must(t, p.to().SetHint(t.Context(), r.Hint))
			must(t, p.stage().Run(t.Context()))
			if len(tc.removed) > 2 {
				if n := p.held(); n != 10 {
					t.Errorf("the target holds %d messages", n)
				}
				return
			}
			for i := range uint64(tc.strays) {
				if seq := uint64(tc.before) + i + 1; !slices.Contains(tc.removed, seq) {
					p.remove(seq)
				}
			}
			p.verify(20)
			if r, err := p.stage().Status(t.Context()); err != nil || r.Foreign+r.Gone != 0 {
				t.Errorf("a sound target has the status %+v, %v", r, err)
			}
		})
	}
}

// The hint says that its original was copied.
func TestTheLastCopyThatIsRemovedIsMissedAndCopiedAgain(t *testing.T) {
	p := newPair(t, 10)
	must(t, p.stage().Run(t.Context()))
	p.remove(10)
	p.stops("message, 10, was removed")
	r, err := p.stage().Status(t.Context())
	if err != nil || r.Position.Seq != 9 || r.Behind != 1 || r.Gone != 1 {
		t.Fatalf("the status is %+v, %v", r, err)
	}
	h, err := p.to().Hint(t.Context())
	must(t, err)
	must(t, p.to().SetHint(t.Context(), r.Hint))
	must(t, p.to().SetHint(t.Context(), h)) // it comes late
	must(t, p.stage().Run(t.Context()))
	p.verify(10)
}

// Otherwise all would be stamped again.
func TestATargetWithoutAnyCopyIsNotRepaired(t *testing.T) {
	p := newPair(t, 10)
	must(t, p.stage().Run(t.Context()))
	s, err := p.js.Stream(t.Context(), p.target)
	must(t, err)
	must(t, s.Purge(t.Context()))
	p.forgets()
	p.stops("has expired, and no hint says")
	if r, err := p.stage().Status(t.Context()); err == nil || !strings.Contains(err.Error(), "copy to a new target") {
		t.Errorf("the status is %+v, %v", r, err)
	}
}

// They cannot be saved any more, and a new target would cost new IDs for all.
func TestARepairContinuesAfterMessagesThatLeftTheSource(t *testing.T) {
	p := newPair(t, 10)
	must(t, p.stage().Run(t.Context()))
	p.publish(10, 20)
	must(t, p.stream().Purge(t.Context(), jetstream.WithPurgeSequence(15)))
	const why = "messages 11 to 14 of stream"
	p.stops(why)
	r, err := p.stage().Status(t.Context())
	if err != nil || r.Position.Seq != 14 || r.Behind != 6 || r.Missed != 4 || !strings.Contains(r.Why, why) {
		t.Fatalf("the status is %+v, %v", r, err)
	}
	must(t, p.to().SetHint(t.Context(), r.Hint))
	must(t, p.stage().Run(t.Context()))
	if n := p.held(); n != 16 {
		t.Errorf("the target holds %d messages", n)
	}
	if r, err := p.stage().Status(t.Context()); err != nil || r.Missed != 0 || r.Behind != 0 {
		t.Errorf("then the status is %+v, %v", r, err)
	}
}

// Otherwise it says that it copies, and 0 behind, until the next message comes.
func TestAnIdleStageSeesItsTargetDamaged(t *testing.T) {
	for name, tc := range map[string]struct {
		damage func(*pair)
		want   string
	}{
		"removed": {func(p *pair) { p.remove(10) }, "was removed"},
		"foreign": {func(p *pair) { p.stray(1) }, "not from a stage"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 10)
			var log natstest.Buffer
			s := p.stage(func(c *stage.Config) { c.Once, c.Log = false, slog.New(slog.NewTextHandler(&log, nil)) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			wait.Until(t, "all is copied", func() bool { return s.Progress().Copied == 10 })
			tc.damage(p)
			wantStop(t, <-ended, tc.want)
			if strings.Contains(log.String(), "interrupted") {
				t.Errorf("nothing was interrupted: %s", log.String())
			}
		})
	}
}

// The new source counts from one: messages with copied numbers would be left out, and later ones copied as if nothing
// were missing.
func TestASourceThatIsMadeAgainWhileItIsReadStopsTheStage(t *testing.T) {
	p := newPair(t, 100)
	// There may be no stream yet when it is asked at first.
	s := p.stage(func(c *stage.Config) { c.Once, c.Settle = false, 300*time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	wait.Until(t, "all is copied", func() bool { return s.Progress().Copied == 100 })
	must(t, p.js.DeleteStream(t.Context(), p.source))
	p.createSource()
	p.publish(100, 250)
	wantStop(t, <-ended, "deleted and made again")
	p.verify(100)
}

func TestAnIdleStageAfterARepairIsNotInterrupted(t *testing.T) {
	t.Parallel()
	p := newPair(t, 10)
	must(t, p.stage().Run(t.Context()))
	p.stray(1)
	p.remove(11)
	r, err := p.stage().Status(t.Context())
	must(t, err)
	must(t, p.to().SetHint(t.Context(), r.Hint))
	var log natstest.Buffer
	s := p.stage(func(c *stage.Config) { c.Once, c.Log = false, slog.New(slog.NewTextHandler(&log, nil)) })
	ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
	defer cancel()
	must(t, s.Run(ctx))
	if strings.Contains(log.String(), "stands by") {
		t.Errorf("it is interrupted: %s", log.String())
	}
}
