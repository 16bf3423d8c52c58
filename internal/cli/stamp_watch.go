package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/ops/metrics"
	"github.com/natsid/natsid/internal/ops/monitor"
	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// watch shows the progress of a stage in the log, on the page of the workers, and on l if that is not nil, until the
// function that it returns is called.
func (c *stampRunCmd) watch(
	s *session, nc *nats.Conn, l net.Listener, log *slog.Logger, progress func() stage.Progress,
) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	var running sync.WaitGroup
	if l != nil {
		log.Info("health and metrics are served", "http", l.Addr().String())
		running.Go(func() {
			if err := monitor.Serve(ctx, l, c.pages(progress)); err != nil {
				log.Error("health and metrics are not served any more", "error", err)
			}
		})
	}
	running.Go(func() { c.tellPage(ctx, nc, s.namespace(), progress) })
	running.Go(func() { logProgress(ctx, log, progress) })
	return func() { cancel(); running.Wait() }
}

// tellPage publishes the state of the stage, which workers show on their page, until ctx ends.
func (c *stampRunCmd) tellPage(
	ctx context.Context, nc *nats.Conn, ns subjects.Namespace, progress func() stage.Progress,
) {
	host, _ := os.Hostname()
	name := fmt.Sprintf("%s/%d", host, os.Getpid())
	say := func(role string) {
		p := progress()
		body, err := json.Marshal(wire.StageView{
			Name: name, From: c.From, To: c.To, Role: role,
			Position: p.Position, Behind: p.Behind, Why: p.Why,
		})
		if err != nil {
			panic(err) // cannot be: texts and numbers
		}
		_ = nc.Publish(wire.Stage(ns), body) // fails only without a connection, when nothing is copied either
	}
	for ok := true; ok; ok = jitter.Sleep(ctx, wire.StageEvery) == nil {
		say(string(progress().Role))
	}
	say(wire.StageStopped)
}

// pages are the paths that --http serves.
func (c *stampRunCmd) pages(progress func() stage.Progress) http.Handler {
	ready := func() map[string]error { return map[string]error{"stamp": progress().Ready(time.Now())} }
	notes := func() []string {
		p := progress()
		return []string{fmt.Sprintf("%s: %s to %s, message %d, %d behind", p.Role, c.From, c.To, p.Position, p.Behind)}
	}
	return monitor.Handler(ready, notes, metrics.StageSource{
		From: c.From, To: c.To, Progress: progress, Version: version(),
	}.Handler())
}

// logEvery is how often progress is logged, if there was any.
const logEvery = 10 * time.Second

// logProgress logs the progress of a stage until ctx ends.
func logProgress(ctx context.Context, log *slog.Logger, progress func() stage.Progress) {
	last, at := progress(), time.Now()
	for jitter.Sleep(ctx, logEvery) == nil {
		p := progress()
		if p == last {
			continue
		}
		perSecond := int(float64(p.Copied-last.Copied) / time.Since(at).Seconds())
		log.Info(string(p.Role), "position", p.Position, "behind", p.Behind, "per_second", perSecond)
		last, at = p, time.Now()
	}
}
