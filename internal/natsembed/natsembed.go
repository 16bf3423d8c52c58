// Package natsembed runs a nats-server with JetStream inside the process.
//
// The server syncs each write to disk before it acknowledges the write (sync_interval: always). By default JetStream
// syncs up to 2 min after that, and a power cut reverts acknowledged marks and records. A sync takes about 0.3 ms, once
// per range or heartbeat, never per ID. Configure the same on a NATS of your own.
package natsembed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Server is a running nats-server. Stop it with Shutdown and WaitForShutdown.
type Server = server.Server

// Config is the settings of the server.
type Config struct {
	// Listen is host:port; port 0 picks a free port. An address in File takes precedence.
	Listen string
	// File is a configuration of nats-server, "" for none. It cannot change the store, the syncs and the pings.
	File string
	// StoreDir is the directory of JetStream's streams.
	StoreDir string
	// Websocket makes the server listen for WebSockets too, without TLS, on a free port of the same host.
	Websocket bool
	// Log receives the server's notices, warnings and errors; nil discards.
	Log *slog.Logger

	at string // host:port of the first server of a Host, "" for that server itself
}

// A TakenError is returned when another program listens on the address.
type TakenError struct{ Address string }

func (e *TakenError) Error() string { return "natsembed: the address is in use: " + e.Address }

// Start starts a server and returns once it accepts connections.
func Start(cfg Config) (*Server, error) {
	opts, err := options(cfg)
	if err != nil {
		return nil, err
	}
	if err := probe(address(opts)); err != nil {
		return nil, err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("natsembed: %w", err)
	}
	l := &logger{log: cfg.Log}
	l.log = cmp.Or(l.log, slog.New(slog.DiscardHandler))
	s.SetLoggerV2(l, false, false, false)
	s.Start()
	if err := await(s, l); err != nil {
		s.Shutdown()
		return nil, err
	}
	return s, nil
}

// await waits until the server accepts connections. A server that cannot open its store or its port never becomes
// ready: it logs a fatal error, which await returns.
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

// startTimeout bounds a start, which may have to recover a large store.
const startTimeout = 2 * time.Minute

// ParseListen splits an address to listen on, host:port. Port 0, any free port, becomes nats-server's -1.
func ParseListen(listen string) (host string, port int, err error) {
	malformed := fmt.Errorf("natsembed: listen address %q: want host:port", listen)
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, malformed
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, malformed
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// Loopback reports whether only this machine can reach an address to listen on.
func Loopback(listen string) bool {
	host, _, err := ParseListen(listen)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// probe returns an error if no server can listen on the address. nats-server itself would only log that.
func probe(listen string) error {
	l, err := net.Listen("tcp", listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return &TakenError{listen}
	}
	if err != nil {
		return fmt.Errorf("natsembed: %w", err)
	}
	return l.Close()
}

// logger writes the server's log to slog, and keeps its fatal error.
type logger struct {
	log   *slog.Logger
	fatal atomic.Pointer[string]
}

func (l *logger) Noticef(format string, v ...any) { l.pass(slog.LevelDebug, format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.pass(slog.LevelWarn, format, v) }
func (l *logger) Errorf(format string, v ...any)  { l.pass(slog.LevelError, format, v) }

// pass writes a line. All lines about clients have one message: natsid's log writes each message once a minute, and
// clients, who can cause any number of lines, must not crowd out other lines.
func (l *logger) pass(level slog.Level, format string, v []any) {
	text := fmt.Sprintf(format, v...)
	if strings.Contains(text, " - cid:") {
		l.log.Log(context.Background(), level, "nats-server: trouble with a client", "client", text)
		return
	}
	l.log.Log(context.Background(), level, "nats-server: "+text)
}

func (l *logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.fatal.Store(&text)
	l.log.Error("nats-server: " + text)
}
func (l *logger) Debugf(string, ...any) {}
func (l *logger) Tracef(string, ...any) {}
