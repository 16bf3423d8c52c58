// Package natsembed runs a nats-server with JetStream inside the process.
package natsembed

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Server is a running nats-server. Stop it with Shutdown and WaitForShutdown.
type Server = server.Server

// Config says how the server runs.
type Config struct {
	// Listen is host:port; port 0 takes a free one.
	Listen string
	// StoreDir is where JetStream keeps its streams.
	StoreDir string
	// Log receives the server's notices, warnings and errors; nil discards.
	Log *slog.Logger
}

// ErrTaken is returned when something listens on the address already.
var ErrTaken = errors.New("natsembed: the address is in use")

// Start starts a server and returns once it accepts connections. JetStream
// writes are on disk before they are acknowledged: what natsid has promised
// must survive a power cut.
func Start(cfg Config) (*Server, error) {
	host, port, err := ParseListen(cfg.Listen)
	if err != nil {
		return nil, err
	}
	if err := probe(cfg.Listen); err != nil {
		return nil, err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "natsid",
		Host:       host,
		Port:       port,
		JetStream:  true,
		StoreDir:   cfg.StoreDir,
		SyncAlways: true,
		NoSigs:     true,
		// Requests go to a worker that hangs until it is missed: after 6 s.
		PingInterval: 2 * time.Second,
		MaxPingsOut:  2,
	})
	if err != nil {
		return nil, fmt.Errorf("natsembed: %w", err)
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &logger{log: log}
	s.SetLoggerV2(l, false, false, false)
	s.Start()
	if err := await(s, l); err != nil {
		s.Shutdown()
		return nil, err
	}
	return s, nil
}

// await waits until the server accepts connections. One that cannot have its
// store or its port says so to its log only, and never gets ready.
func await(s *Server, l *logger) error {
	for deadline := time.Now().Add(startTimeout); !s.ReadyForConnections(50 * time.Millisecond); {
		if fatal := l.fatal.Load(); fatal != nil {
			return fmt.Errorf("natsembed: %s", *fatal)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("natsembed: the server did not start within %v; see the log", startTimeout)
		}
	}
	return nil
}

// startTimeout is long enough for a large store to be recovered.
const startTimeout = 2 * time.Minute

// ParseListen splits an address to listen on, host:port. Port 0 becomes -1,
// nats-server's word for any free port.
func ParseListen(listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("natsembed: listen address %q: want host:port", listen)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// probe finds out whether the address can be had: nats-server itself only
// logs that it cannot, and goes on without.
func probe(listen string) error {
	l, err := net.Listen("tcp", listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: %s", ErrTaken, listen)
	}
	if err != nil {
		return fmt.Errorf("natsembed: %w", err)
	}
	return l.Close()
}

// logger passes the server's log on to slog, and keeps why it gave up.
type logger struct {
	log   *slog.Logger
	fatal atomic.Pointer[string]
}

func (l *logger) Noticef(format string, v ...any) {
	l.log.Debug("nats-server: " + fmt.Sprintf(format, v...))
}
func (l *logger) Warnf(format string, v ...any) {
	l.log.Warn("nats-server: " + fmt.Sprintf(format, v...))
}
func (l *logger) Errorf(format string, v ...any) {
	l.log.Error("nats-server: " + fmt.Sprintf(format, v...))
}
func (l *logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.fatal.Store(&text)
	l.log.Error("nats-server: " + text)
}
func (l *logger) Debugf(string, ...any) {}
func (l *logger) Tracef(string, ...any) {}
