// Package monitor serves health, readiness and metrics over HTTP, to operators
// and probes. No ID passes through it.
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

// Handler serves /healthz, which is 200 while the process lives, /readyz, which is
// 200 if all modes can issue IDs, and /metrics. ready returns for each mode why it
// cannot issue, nil if it can. notes returns lines for operators that /readyz ends with.
func Handler(ready func() map[string]error, notes func() []string, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		writeReadiness(w, ready())
		for _, note := range notes() {
			fmt.Fprintln(w, note)
		}
	})
	mux.Handle("GET /metrics", metrics)
	return mux
}

// writeReadiness writes a line for each mode.
func writeReadiness(w http.ResponseWriter, modes map[string]error) {
	for _, err := range modes {
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			break
		}
	}
	for _, mode := range slices.Sorted(maps.Keys(modes)) {
		fmt.Fprintf(w, "%s: %s\n", mode, State(modes[mode]))
	}
}

// State returns the state of a mode in words: "ready" if why is nil, else "not ready" and why it cannot issue IDs.
func State(why error) string {
	if why == nil {
		return "ready"
	}
	return "not ready: " + why.Error()
}

// Unused connections must not fill the process. headTime is how long reading the head of a request may take, and
// idleTime how long a connection may wait for its next request: longer than the interval of scrapes.
const (
	headTime = 5 * time.Second
	idleTime = 2 * time.Minute
)

// Serve serves h on l until ctx ends, and closes l.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: headTime, IdleTimeout: idleTime}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}
