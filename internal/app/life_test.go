package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/internal/testkit/natstest"
)

// A diary notes the starts and stops of steps.
type diary []string

// step returns a step whose start returns an error.
func (d *diary) step(name string, start error) step {
	return step{name: name, within: time.Second,
		start: func(context.Context) error {
			*d = append(*d, "start "+name)
			return start
		},
		stop: func() { *d = append(*d, "stop "+name) },
	}
}

func (d *diary) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(*d, want) {
		t.Errorf("%q, want %q", *d, want)
	}
}

func TestStepsStopInReverseOrderWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		live(ctx, nil, slog.New(slog.DiscardHandler),
			[]step{d.step("a", nil), {name: "nothing"}, d.step("b", nil), d.step("c", nil)})
		if time.Since(begin) != time.Minute {
			t.Errorf("ended after %v", time.Since(begin))
		}
		d.want(t, "start a", "start b", "start c", "stop c", "stop b", "stop a")
	})
}

func TestAStepThatCannotStartStopsThoseBeforeIt(t *testing.T) {
	var d diary
	cannot := errors.New("cannot start")
	ctx, quit := context.WithCancelCause(t.Context())
	live(ctx, quit, slog.New(slog.DiscardHandler),
		[]step{d.step("a", nil), d.step("b", nil), d.step("c", cannot), d.step("d", nil)})
	if err := context.Cause(ctx); !errors.Is(err, cannot) {
		t.Errorf("%v, want %v", err, cannot)
	}
	d.want(t, "start a", "start b", "start c", "stop b", "stop a")
}

func TestWhatRunsUntilItsTurnOutlivesWhatRunsDuring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ends := func(name string) func(context.Context) {
			return func(ctx context.Context) {
				<-ctx.Done()
				d = append(d, name+" ends")
			}
		}
		live(ctx, nil, slog.New(slog.DiscardHandler), []step{
			until("number", time.Second, ends("number")),
			{name: "slow", within: time.Hour, stop: func() { time.Sleep(time.Second) }},
			during("requests", time.Second, ends("requests")),
		})
		d.want(t, "requests ends", "number ends")
	})
}

func TestAStopThatTakesLongIsLoggedAndWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log natstest.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		live(ctx, nil, slog.New(slog.NewTextHandler(&log, nil)), []step{
			{name: "store", within: time.Second, stop: func() { time.Sleep(time.Minute) }},
			{name: "number", within: time.Second, stop: func() { time.Sleep(time.Second / 2) }},
		})
		if time.Since(begin) != time.Minute+time.Second/2 {
			t.Errorf("ended after %v", time.Since(begin))
		}
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "step=store after=1s") {
			t.Errorf("logged %s", log.String())
		}
	})
}

// The order is part of the laws: see [program.steps].
func TestTheOrderOfTheLife(t *testing.T) {
	var names []string
	for _, s := range newProgram(Default(), nil).steps() {
		names = append(names, s.name)
		if s.stop != nil && s.within == 0 {
			t.Errorf("the stop of %q has no bound", s.name)
		}
	}
	want := []string{
		"lock of the data directory", "embedded NATS server", "disk of the embedded server", "NATS connections",
		"messages about registries", "table", "allocator, issuer and keeper", "buckets", "alarms", "grants", "HTTP",
		"state of this worker, for other workers", "last hour", "health, readiness, metrics and the page",
		"comparison of tags with the store", "who shares rates", "settings of the buckets",
		"buckets that were not open at the start", "announcement",
		"question which registries there are", "worker number", "watch of the registry",
		"question whether NATS still answers", "allocator", "requests", "who can load",
		"loads for other workers",
	}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}
