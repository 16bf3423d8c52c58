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

// step returns one that fails to start or to stop as given.
func (d *diary) step(name string, start, stop error) step {
	return step{name: name, within: time.Second,
		start: func(context.Context) error {
			*d = append(*d, "start "+name)
			return start
		},
		stop: func() error {
			*d = append(*d, "stop "+name)
			return stop
		},
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
		ctx, quit := context.WithTimeout(t.Context(), time.Minute)
		defer quit()
		begin := time.Now()
		steps := []step{d.step("a", nil, nil), {name: "nothing"}, d.step("b", nil, nil), d.step("c", nil, nil)}
		err := live(ctx, quit, slog.New(slog.DiscardHandler), steps)
		if err != nil || time.Since(begin) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		d.want(t, "start a", "start b", "start c", "stop c", "stop b", "stop a")
	})
}

func TestAStepThatCannotStartStopsThoseBeforeIt(t *testing.T) {
	var d diary
	cannot, dirty := errors.New("cannot start"), errors.New("cannot stop")
	ctx, quit := context.WithCancel(t.Context())
	steps := []step{d.step("a", nil, dirty), d.step("b", nil, nil), d.step("c", cannot, nil), d.step("d", nil, nil)}
	if err := live(ctx, quit, slog.New(slog.DiscardHandler), steps); !errors.Is(err, cannot) || !errors.Is(err, dirty) {
		t.Errorf("%v, want both errors", err)
	}
	d.want(t, "start a", "start b", "start c", "stop b", "stop a")
}

func TestWhatRunsUntilItsTurnOutlivesWhatRunsDuring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, quit := context.WithTimeout(t.Context(), time.Minute)
		defer quit()
		ends := func(name string) func(context.Context) error {
			return func(ctx context.Context) error {
				<-ctx.Done()
				d = append(d, name+" ends")
				return errors.New(name)
			}
		}
		err := live(ctx, quit, slog.New(slog.DiscardHandler), []step{
			until("number", time.Second, ends("number")),
			{name: "slow", within: time.Hour, stop: func() error { time.Sleep(time.Second); return nil }},
			during("requests", time.Second, ends("requests")),
		})
		if err == nil || err.Error() != "requests\nnumber" {
			t.Errorf("%v, want what both returned", err)
		}
		d.want(t, "requests ends", "number ends")
	})
}

func TestAStopThatTakesLongIsLoggedAndWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log natstest.Buffer
		ctx, quit := context.WithCancel(t.Context())
		quit()
		begin := time.Now()
		err := live(ctx, quit, slog.New(slog.NewTextHandler(&log, nil)), []step{
			{name: "store", within: time.Second, stop: func() error { time.Sleep(time.Minute); return nil }},
			{name: "number", within: time.Second, stop: func() error { time.Sleep(time.Second / 2); return nil }},
		})
		if err != nil || time.Since(begin) != time.Minute+time.Second/2 {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "step=store after=1s") {
			t.Errorf("logged %s", log.String())
		}
	})
}

// The order is part of the laws: see [program.steps].
func TestTheOrderOfTheLife(t *testing.T) {
	var names []string
	for _, s := range newProgram(Default(), func() {}).steps() {
		names = append(names, s.name)
		if s.stop != nil && s.within == 0 {
			t.Errorf("the stop of %q has no bound", s.name)
		}
	}
	want := []string{
		"lock of the data directory", "embedded NATS server", "disk of the embedded server", "NATS connections",
		"messages about registries", "table", "buckets",
		"allocator, issuer and keeper", "alarms", "grants", "HTTP",
		"answers to workers that ask how this one is", "last hour", "health, readiness, metrics and the page",
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
