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

// watch shows the progress of a stage in the log, on the page of the workers, and over HTTP on l unless l is nil. It
// goes on until the returned function is called.
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
	running.Go(func() { c.report(ctx, nc, s.namespace(), log, progress) })
	return func() { cancel(); running.Wait() }
}

// logEvery is the least time between two lines of the log about progress.
const logEvery = 10 * time.Second

// report publishes the state of the stage, which workers show on their page, and logs its progress, until ctx ends.
func (c *stampRunCmd) report(
	ctx context.Context, nc *nats.Conn, ns subjects.Namespace, log *slog.Logger, progress func() stage.Progress,
) {
	host, _ := os.Hostname()
	name := fmt.Sprintf("%s/%d", host, os.Getpid())
	say := func(p stage.Progress, role string) {
		body, err := json.Marshal(wire.StageView{
			Name: name, From: c.From, To: c.To, Role: role,
			Position: p.Position, Behind: p.Behind, Why: p.Why,
		})
		if err != nil {
			panic(err) // cannot be: texts and numbers
		}
		_ = nc.Publish(wire.Stage(ns), body) // without a connection this fails, but nothing is copied either
	}
	last, at := progress(), time.Now()
	for ok := true; ok; ok = jitter.Sleep(ctx, wire.StageEvery) == nil {
		p := progress()
		say(p, string(p.Role))
		if passed := time.Since(at); p != last && passed >= logEvery {
			perSecond := int(float64(p.Copied-last.Copied) / passed.Seconds())
			log.Info(string(p.Role), "position", p.Position, "behind", p.Behind, "per_second", perSecond)
			last, at = p, time.Now()
		}
	}
	say(progress(), wire.StageStopped)
}

// pages serves the HTTP paths of --http: health, readiness and metrics.
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
