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

// An httpDoor serves health, readiness, metrics and the page.
type httpDoor struct {
	*program
	listener net.Listener // nil if HTTP is not served
}

// listen listens on the address of --http. If it cannot, the reaction depends on who chose the address. For an
// operator's address the start ends with an error, since probes and alerts depend on it. With the default address
// natsid runs without HTTP, so that the same command can start a second worker on a machine.
func (d *httpDoor) listen(context.Context) error {
	if d.cfg.HTTP == "" {
		return nil
	}
	if file := d.cfg.HTTPTokenFile; file != "" {
		if _, err := monitor.ReadToken(file); err != nil {
			return fmt.Errorf("%s cannot be used: %w", place("http-token-file", d.cfg.given), err)
		}
	}
	l, err := net.Listen("tcp", d.cfg.HTTP)
	if err != nil && d.cfg.given["http"].From != FromDefault {
		return fmt.Errorf("health, metrics and the page cannot be served: %w; choose another address with %s",
			err, place("http", d.cfg.given))
	}
	if err != nil {
		d.cfg.Log.Warn("health, readiness, metrics and the page are not served: cannot listen; "+
			"choose another address with --http ADDR, or none with --http ''", "error", err)
		return nil
	}
	d.listener = l
	return nil
}

func (d *httpDoor) serve(ctx context.Context) {
	if d.listener == nil {
		return
	}
	if err := monitor.Serve(ctx, d.listener, d.handler()); err != nil {
		d.cfg.Log.Error("HTTP failed: health, readiness, metrics and the page are no longer served; restart natsid",
			"error", err)
	}
}

// handler returns the handler of all paths. Health and readiness need no token. Other paths need the token of
// --http-token-file, if that is given.
func (d *httpDoor) handler() http.Handler {
	open := monitor.Handler(d.modes, d.notes, d.metrics.Handler())
	mux := http.NewServeMux()
	mux.Handle("/healthz", open)
	mux.Handle("/readyz", open)
	if file := d.cfg.HTTPTokenFile; file != "" {
		mux.Handle("/metrics", monitor.Guard(file, open))
		mux.Handle(monitor.ProfilesPath, monitor.Guard(file, monitor.Profiles()))
	} else {
		mux.Handle("/metrics", open)
	}
	mux.Handle(d.pageAt())
	return mux
}

// pageAt returns the pattern and the handler of the page. With --http-token-file the page serves callers that have the
// token. Without a token it serves this machine alone; and if other machines reach --http, it is off, and / says so.
func (d *httpDoor) pageAt() (pattern string, h http.Handler) {
	address, tcp := d.listener.Addr().(*net.TCPAddr)
	switch file := d.cfg.HTTPTokenFile; {
	case file != "":
		return "/", monitor.Guard(file, d.page())
	case tcp && address.IP.IsLoopback():
		return "/", monitor.Local(d.page())
	}
	const remedy = "set --http-token-file FILE with a token that it then demands"
	d.cfg.Log.Info("the page is off: other machines reach --http; "+remedy, "http", address.String())
	return "/{$}", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // all other paths are answered 404
		http.Error(w, "the page is off: other machines reach this address; "+remedy, http.StatusForbidden)
	})
}

// maxTags is how many tags the page lists.
const maxTags = 1_000_000

// page returns the handler of the page.
func (p *program) page() http.Handler {
	return page.New(page.Config{
		Fleet: fleetview.New(fleetview.Config{
			Conn: p.links.control, Namespace: p.cfg.Namespace, Registry: p.storage.numbers,
			Patience: 800 * time.Millisecond, Quiet: 50 * time.Millisecond, Now: p.cfg.Now, Self: p.views.view,
		}),
		Tags:  func(ctx context.Context) ([]segment.Tag, error) { return p.storage.tags.List(ctx, "", maxTags) },
		Info:  p.worker.TagInfo,
		Notes: p.notes, Namespace: p.cfg.Namespace, Instance: p.instance, Now: p.cfg.Now,
	})
}

// notes returns lines for operators, which /readyz shows after the readiness.
func (p *program) notes() (all []string) {
	if why := p.watch.Trouble(); why != nil && p.watch.IsAnswered() {
		all = append(all, fmt.Sprintf("relays: this worker cannot load, and another one answers for it: %v", why))
	}
	if rate := p.limits.Throttle(); rate > 0 {
		all = append(all, fmt.Sprintf("throttled: each tag to %d IDs/s", rate))
	}
	return all
}
