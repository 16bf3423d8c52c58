package tests

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/wait"
)

// launch starts a nats-server with options, on free ports of loopback. It ends with the test.
func launch(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	return launchOn(t, "127.0.0.1:0", opts)
}

// launchOn is launch on an address. JetStream has a directory of the test's, unless opts has one.
func launchOn(t *testing.T, addr string, opts *server.Options) *server.Server {
	t.Helper()
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if opts.Host, opts.Port = at.IP.String(), at.Port; at.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	if opts.JetStream && opts.StoreDir == "" {
		opts.StoreDir = t.TempDir()
	}
	opts.NoSigs, opts.NoLog = true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.WaitForShutdown)
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(patience) {
		t.Fatalf("the server %s does not start", opts.ServerName)
	}
	return s
}

// startNATS starts a nats-server on an address, with JetStream in a directory,
// or without if that is "".
func startNATS(t *testing.T, addr, store string) *server.Server {
	t.Helper()
	return launchOn(t, addr, &server.Options{JetStream: store != "", StoreDir: store})
}

// startOn starts a worker on a NATS, with data in dir. It returns the URL of its
// monitor, which may not be served yet, and a function that stops the worker, at
// the latest when the test ends.
func startOn(t *testing.T, url, dir string) (monitor string, stop func() error) {
	t.Helper()
	cfg := configOn(t, url, dir)
	return "http://" + cfg.HTTP, startWith(t, cfg)
}

// startReady is [startOn] for a worker that becomes ready, with a directory of its own.
func startReady(t *testing.T, url string) (monitor string, stop func() error) {
	t.Helper()
	monitor, stop = startOn(t, url, t.TempDir())
	wait.Until(t, "the worker is ready", ok(monitor+"/readyz"))
	return monitor, stop
}

// configOn returns the settings of [startOn].
func configOn(t *testing.T, url, dir string) app.Config {
	t.Helper()
	cfg := app.Default()
	cfg.NATS, cfg.Data, cfg.HTTP = url, dir, freePort(t)
	cfg.AutoCreateTags, cfg.MaxClockSkew = true, time.Millisecond
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	return cfg
}

// startWith starts a worker with those settings, and returns how to stop it.
func startWith(t *testing.T, cfg app.Config) (stop func() error) {
	_, stop = watchWith(t, cfg)
	return stop
}

// watchWith is startWith, and ended is closed once the worker has ended, also by itself.
func watchWith(t *testing.T, cfg app.Config) (ended <-chan struct{}, stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = app.Run(ctx, cfg)
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		<-done
		return err
	})
	t.Cleanup(func() { _ = stop() })
	return done, stop
}
