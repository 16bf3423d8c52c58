// Package monitor is the HTTP side for operators and probes: health,
// readiness and metrics. No ID passes through it.
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

// Handler serves /healthz, /readyz and /metrics. ready tells for each mode why
// it cannot issue, nil if it can.
func Handler(ready func() map[string]error, metrics http.Handler) http.Handler {
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
			state := "ready"
			if err := modes[mode]; err != nil {
				state = "not ready: " + err.Error()
			}
			fmt.Fprintf(w, "%s: %s\n", mode, state)
		}
	})
	mux.Handle("GET /metrics", metrics)
	return mux
}

// Serve serves h on l until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}
