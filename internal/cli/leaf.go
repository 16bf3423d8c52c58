package cli

import (
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/leaf"
	"github.com/natsid/natsid/internal/registry/buckets"
)

type leafCmd struct {
	Listen   string        `default:"127.0.0.1:8081"`
	Deadline time.Duration `default:"3s"`
}

func (*leafCmd) help() help {
	return help{
		summary: "Answer the HTTP paths of Meituan's Leaf, as a client of the workers.",
		detail: `docs/from-leaf.md lists the paths. Start as many processes as you like.

Example:
  natsid leaf --nats nats://n1:4222 --listen 10.0.0.5:8081`,
		values: map[string]string{
			"listen":   "Address of Leaf's paths. Whoever reaches it can take IDs: they have neither users nor TLS.",
			"deadline": "Time within which each request is answered: longer than the --deadline of workers.",
		},
	}
}

type leafJSON struct {
	URL string `json:"url"`
}

// Run serves the HTTP paths of Leaf until the command is stopped. While NATS is away, each request gets an error.
func (c *leafCmd) Run(s *session) error {
	cfg, err := s.validConfig()
	if err != nil {
		return err
	}
	s.drains(false)
	l, err := listen("--listen", c.Listen)
	if err != nil {
		return err
	}
	defer l.Close()
	log := cfg.NewLog(s.stderr)
	nc, err := s.joinForGood(log)
	if err != nil {
		return err
	}
	defer nc.Close()
	where := leafJSON{"http://" + l.Addr().String()}
	_ = s.print(where, func(out *sheet) { out.line("Leaf's paths are on %s", where.URL) })
	if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		log.Warn("every program that reaches Leaf's paths can take IDs: they have neither users nor TLS")
	}
	spare := make([]byte, spareHeap)
	defer runtime.KeepAlive(spare)
	ids, err := s.client(nc, client.Config{Log: log, Timeout: c.Deadline})
	if err != nil {
		return err
	}
	return (&leaf.Server{IDs: ids, Deadline: c.Deadline, Layout: cfg.Layout, Log: log}).Serve(s.ctx, l)
}

// listen listens on the address that a flag gives.
func listen(flag, addr string) (net.Listener, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, usage(fmt.Errorf("%s %q: want host:port", flag, addr))
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w; choose another address", flag, addr, err)
	}
	return l, nil
}

// joinForGood connects to NATS, later if NATS does not answer yet. It returns an error only if waiting is no remedy.
func (s *session) joinForGood(log *slog.Logger) (*nats.Conn, error) {
	answers := func(*nats.Conn) { log.Info("NATS answers") }
	opts := []nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond), nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("NATS is away", "error", err) }),
		nats.ConnectHandler(answers), nats.ReconnectHandler(answers),
	}
	refused := func(missing *buckets.RightError) { log.Error("NATS refuses a request", "error", missing) }
	nc, err := s.dial(refused, opts...)
	if err != nil && !isA[*app.JoinError](err) && !isA[usageError](err) {
		log.Warn("NATS is away", "error", err)
		nc, err = s.dial(refused, append(opts, nats.RetryOnFailedConnect(true))...)
	}
	return nc, err
}
