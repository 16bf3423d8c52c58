package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/ops/monitor"
	"github.com/natsid/natsid/internal/ops/page"
	"github.com/natsid/natsid/segment"
)

// listenHTTP opens the address of the monitor. Probes and alerts depend on an address that was given: without it the
// program does not start. Without the default address IDs are served without a monitor: a second worker of this machine
// needs no other command than the first.
func (p *program) listenHTTP(context.Context) error {
	if p.cfg.HTTP == "" {
		return nil
	}
	if file := p.cfg.HTTPTokenFile; file != "" {
		if _, err := monitor.ReadToken(file); err != nil {
			return fmt.Errorf("%s cannot be used: %w", place("http-token-file", p.cfg.given), err)
		}
	}
	l, err := net.Listen("tcp", p.cfg.HTTP)
	if err != nil && p.cfg.given["http"].From != FromDefault {
		return fmt.Errorf("health, metrics and the page cannot be served: %w; choose another address with %s",
			err, place("http", p.cfg.given))
	}
	if err != nil {
		p.cfg.Log.Warn("health, readiness, metrics and the page are not served: cannot listen; "+
			"choose another address with --http ADDR, or none with --http ''", "error", err)
		return nil
	}
	p.http, p.where.HTTP = l, l.Addr().String()
	return nil
}

// monitor serves HTTP until ctx ends.
func (p *program) monitor(ctx context.Context) error {
	if p.http == nil {
		return nil
	}
	if err := monitor.Serve(ctx, p.http, p.handler()); err != nil {
		p.cfg.Log.Error("HTTP failed: health, readiness, metrics and the page are no longer served; restart natsid",
			"error", err)
	}
	return nil
}

// handler serves health and readiness to all callers, and other paths as --http-token-file says.
func (p *program) handler() http.Handler {
	open := monitor.Handler(p.ready.modes, p.notes, p.metrics.Handler())
	mux := http.NewServeMux()
	mux.Handle("/healthz", open)
	mux.Handle("/readyz", open)
	if file := p.cfg.HTTPTokenFile; file != "" {
		mux.Handle("/metrics", monitor.Guard(file, open))
	} else {
		mux.Handle("/metrics", open)
	}
	if p.cfg.HTTPPage {
		mux.Handle(p.private("/", "the page", p.page))
	}
	if p.cfg.HTTPPprof {
		mux.Handle(p.private(monitor.ProfilesPath, "/debug/pprof", monitor.Profiles))
	}
	return mux
}

// private returns the handler of a path that is not for all callers: it serves callers with the token, or this
// machine alone. If other machines reach --http and there is no token, the path is off, and its answer says so.
func (p *program) private(path, name string, what func() http.Handler) (pattern string, h http.Handler) {
	address, tcp := p.http.Addr().(*net.TCPAddr)
	switch file := p.cfg.HTTPTokenFile; {
	case file != "":
		return path, monitor.Guard(file, what())
	case tcp && address.IP.IsLoopback():
		return path, monitor.Local(what())
	}
	const remedy = "set --http-token-file FILE with a token that it then demands"
	p.cfg.Log.Info(name+" is off: other machines reach --http; "+remedy, "http", address.String())
	if path == "/" {
		path = "/{$}" // paths below it do not exist
	}
	return path, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, name+" is off: other machines reach this address; "+remedy, http.StatusForbidden)
	})
}

// maxTags is how many tags the page lists.
const maxTags = 1_000_000

// page returns the page.
func (p *program) page() http.Handler {
	return page.New(page.Config{
		Fleet: fleetview.New(fleetview.Config{
			Conn: p.links.control, Namespace: p.cfg.Namespace, Registry: p.storage.registry,
			Patience: 800 * time.Millisecond, Now: p.cfg.Now, Self: p.view,
		}),
		Tags: func(ctx context.Context) ([]segment.Tag, error) { return p.storage.tags.List(ctx, "", maxTags) },
		Look: func(ctx context.Context, tag string) (segment.Tag, error) { return p.storage.tags.Look(ctx, tag) },
		Info: p.worker.TagInfo, Alarms: p.kept.read,
		Settings: p.pageSettings, Notes: p.notes,
		Namespace: p.cfg.Namespace, Layout: p.cfg.Layout, Version: p.cfg.Version, Instance: p.instance,
		Now: p.cfg.Now,
	})
}

func (p *program) pageSettings() (all []page.Setting) {
	for _, v := range p.cfg.Values() {
		from := v.Place
		if from == "" {
			from = v.From.String()
		}
		all = append(all, page.Setting{Name: v.Flag, Value: v.Text, From: from})
	}
	return all
}
