package worker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// A refuser refuses one mode while it is on.
type refuser struct {
	mode    worker.Mode
	reasons worker.Reasons
}

var errRefused = errors.New("the marks went back")

func (f *refuser) edit(_ *segment.Config, cfg *worker.Config) {
	cfg.Reasons = &f.reasons
}

// set refuses the mode, or allows it.
func (f *refuser) set(on bool) {
	if on {
		f.reasons.Set(worker.Stopped, errRefused, f.mode)
	} else {
		f.reasons.Clear(worker.Stopped, f.mode)
	}
}

const stopped = "the registry is stopped"

var subjectOf = map[worker.Mode]string{
	worker.Segment: "id.segment.order", worker.Snowflake: "id.snowflake", worker.Tags: "id.tag.list",
}

// Callers learn at once, and that to ask again for it does not help.
func TestAModeThatIsStoppedAnswersSoWhileTheOthersAreServed(t *testing.T) {
	for mode, subject := range subjectOf {
		t.Run(string(mode), func(t *testing.T) {
			f := &refuser{mode: mode}
			r := start(t, natstest.Start(t), 0, newStore(t), f.edit)
			r.one("id.segment.order")
			f.set(true)
			r.worker.Wake()
			n := 0
			r.eventually("look, and have trouble", func() bool {
				if got := r.ask(subject, ""); got.code != "503" || got.text != stopped || got.retryAfter == 0 {
					t.Fatalf("while it is stopped: %+v", got)
				}
				n++
				return n >= 50 && r.worker.Trouble(mode) != nil
			})
			for m, other := range subjectOf {
				if got := r.ask(other, ""); m != mode && got.code != "" {
					t.Errorf("%s: %+v", other, got)
				}
			}
			f.set(false)
			if got := r.ask(subject, ""); got.code != "" {
				t.Errorf("afterwards: %+v", got)
			}
		})
	}
}

// All workers of a registry stop, but one may know first, or alone; another registry at the same subjects may be sound.
func TestAWorkerThatIsStoppedPassesEachRequestOnToOneThatIsNot(t *testing.T) {
	for mode, subject := range subjectOf {
		t.Run(string(mode), func(t *testing.T) {
			f, url, store := new(refuser), natstest.Start(t), newStore(t)
			sound := start(t, url, 0, store, func(_ *segment.Config, cfg *worker.Config) {
				cfg.Registry = func() string { return "another" }
			})
			alone := start(t, url, 1, store, f.edit)
			alone.one("id.segment.order")
			f.reasons.Set(worker.Stopped, errRefused, worker.Segment, mode)
			// Until it has left the group of relays, all tries may reach itself.
			alone.eventually("leave", func() bool { return alone.worker.Trouble(worker.Relay) != nil })
			for range 40 {
				if got := alone.ask(subject, ""); got.code != "" {
					t.Fatalf("%+v", got)
				}
			}
			if a, s := alone.served(), sound.served(); a < 2 || s == 0 {
				t.Errorf("%d requests reached the worker that is stopped, and %d the other", a, s)
			}
		})
	}
}

// It lacks a number then, as where its registry is wiped.
func TestAWorkerWithoutANumberAnswersThatItIsStopped(t *testing.T) {
	f := &refuser{mode: worker.Snowflake}
	r := start(t, natstest.Start(t), 0, newStore(t), f.edit)
	f.set(true)
	r.issuer.Use(nil)
	r.worker.Wake()
	r.eventually("note both", func() bool { return len(r.worker.Outs(worker.Snowflake)) == 2 })
	if got := r.ask("id.snowflake", ""); got.text != stopped {
		t.Errorf("%+v", got)
	}
	f.set(false)
	r.eventually("leave", func() bool {
		_, err := r.try("id.snowflake", "")
		return errors.Is(err, nats.ErrNoResponders)
	})
}

func TestNoIDLeavesTheWorkerOnceItsModeIsRefused(t *testing.T) {
	f := &refuser{mode: worker.Segment}
	r := start(t, natstest.Start(t), 0, newStore(t), f.edit)
	loads, proceed := make(chan struct{}, 10), make(chan struct{})
	r.store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
		loads <- struct{}{}
		<-proceed
		return load()
	})
	answers := make(chan reply, 1)
	go func() {
		got, _ := r.try("id.segment.order", "")
		answers <- got
	}()
	<-loads // the request is parked
	f.set(true)
	close(proceed)
	if got := <-answers; got.code != "503" || got.text != stopped {
		t.Errorf("a request that was parked before: %+v", got)
	}
}
