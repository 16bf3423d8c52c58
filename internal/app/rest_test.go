package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/worker"
)

// The worker looks once in two minutes here, so whatever it follows has woken it.
func TestAWorkerAtRestIsWokenByItsNumberAndByRefusals(t *testing.T) {
	cfg := Default()
	cfg.NATS, cfg.HTTP, cfg.Log = natstest.Start(t), "", slog.New(slog.DiscardHandler)
	cfg.Data = "" // a fence is looked at before it is reached
	cfg.MaxClockSkew = time.Millisecond
	ready := make(chan struct{})
	cfg.Ready = func(Where) { close(ready) }
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	cfg.Now = time.Now
	ctx, quit := context.WithCancel(context.Background())
	p := newProgram(cfg, quit)
	var steps []step
	for _, s := range p.steps() {
		if steps = append(steps, s); s.name == "allocator, issuer and keeper" {
			steps = append(steps, step{name: "rest", start: func(context.Context) error {
				cfg := p.workerConfig()
				cfg.Rest = 2 * time.Minute
				p.worker = worker.New(cfg)
				return nil
			}})
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- live(ctx, quit, cfg.Log, steps) }()
	defer func() {
		quit()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-ready:
	case <-time.After(time.Minute):
		t.Fatalf("not ready: %v", p.modes())
	}
	eventually := func(what string, mode worker.Mode, serves bool) {
		t.Helper()
		for late := time.Now().Add(time.Minute); (p.worker.Trouble(mode) == nil) != serves; {
			if time.Now().After(late) {
				t.Fatalf("%s: %v", what, p.worker.Trouble(mode))
			}
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond) // so that it rests again: a worker that does not yet would pass without
	}
	time.Sleep(200 * time.Millisecond)
	g := p.issuer.Generator()
	p.use(nil)
	eventually("its number is lost", worker.Snowflake, false)
	p.use(g)
	eventually("it has one again", worker.Snowflake, true)
	for _, reason := range []worker.Reason{worker.Stopped, worker.Store} {
		p.reasons.Set(reason, errors.New("a test"), worker.Segment)
		eventually(string(reason), worker.Segment, false)
		p.reasons.Clear(reason, worker.Segment)
		eventually("no longer "+string(reason), worker.Segment, true)
	}
}
