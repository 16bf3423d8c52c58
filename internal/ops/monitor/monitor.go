// Package monitor serves health, readiness and metrics over HTTP, to operators and probes. No ID passes through it.
package monitor

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"
)

// Handler serves /healthz, which is 200 while the process lives, /readyz, which is 200 if all modes can issue IDs, and
// /metrics. ready returns, by mode, why the mode cannot issue IDs; nil if it can. /readyz ends with the lines of notes.
func Handler(ready func() map[string]error, notes func() []string, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		modes := ready()
		for _, err := range modes {
			if err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				break
			}
		}
		for _, mode := range slices.Sorted(maps.Keys(modes)) {
			fmt.Fprintf(w, "%s: %s\n", mode, State(modes[mode]))
		}
		for _, note := range notes() {
			fmt.Fprintln(w, note)
		}
	})
	mux.Handle("GET /metrics", metrics)
	return mux
}

// State returns the state of a mode in words: "ready" if why is nil, else "not ready" and why it cannot issue IDs.
func State(why error) string {
	if why == nil {
		return "ready"
	}
	return "not ready: " + why.Error()
}

// Serve serves h on l until ctx ends, and closes l. It closes connections that are idle for 2 min.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	const longerThanScrapes = 2 * time.Minute
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: longerThanScrapes}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}
