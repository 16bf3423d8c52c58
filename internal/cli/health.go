package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

type healthCmd struct{}

func (*healthCmd) help() help {
	return help{
		summary: "Ask a worker on this machine whether it is ready, for images without a shell.",
		detail: `It prints the answer of /readyz at --http, the address of a worker or "natsid
stamp"; a container has it in NATSID_HTTP. The exit code is 0 if all modes are ready,
and 1 if one is not, or if nobody answers within 5 s.

A worker that is not ready mostly waits for NATS, and needs no restart: do not use
this command as a liveness probe, which kills containers that fail it.

Examples:
  natsid health
  natsid health --http 127.0.0.1:8081`,
	}
}

// healthJSON is a worker's answer on /readyz.
type healthJSON struct {
	Ready bool     `json:"ready"`
	Says  []string `json:"says"` // the lines of the answer
}

func (*healthCmd) Run(s *session) error {
	cfg, err := s.config()
	if err != nil {
		return err
	}
	addr, err := dialable(cfg.HTTP)
	if err != nil {
		return usage(err)
	}
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	h, err := askReady(ctx, addr)
	if err != nil {
		return fmt.Errorf("nobody answers on http://%s/readyz: %w; name the address of the worker with --http ADDR",
			addr, err)
	}
	err = s.print(h, func(out *sheet) {
		if h.Ready { // else the lines are in the error
			fmt.Fprintln(out, strings.Join(h.Says, "\n"))
		}
	})
	if err == nil && !h.Ready {
		err = errors.New(strings.Join(h.Says, "; "))
	}
	return err
}

// dialable returns the address at which to reach a worker that listens on addr.
func dialable(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	switch {
	case addr == "":
		return "", errors.New("--http '' serves nothing that could be asked; give the worker an address")
	case err != nil:
		return "", fmt.Errorf("--http %s: %w; it must be host:port", addr, err)
	case port == "0":
		return "", fmt.Errorf("--http %s picks a free port; name the one that the worker printed", addr)
	}
	return net.JoinHostPort(cmp.Or(host, "localhost"), port), nil
}

// askReady requests /readyz. It uses no proxy, since the worker is on this machine or near it.
func askReady(ctx context.Context, addr string) (h healthJSON, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return h, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return h, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return h, err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		return h, fmt.Errorf("it answers %s, so it is not natsid", resp.Status)
	}
	return healthJSON{resp.StatusCode == http.StatusOK, strings.Split(strings.TrimSpace(string(text)), "\n")}, nil
}
