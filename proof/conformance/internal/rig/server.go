// Package rig is what a client is tested against: a nats-server, a responder that misbehaves as a scenario says, a
// proxy, and whole natsids, each a process.
package rig

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// maxPayload is enough for the largest reply of the vectors.
const maxPayload = 16 << 20

// StartServer starts a nats-server with JetStream in this process, on a free port of loopback.
func StartServer(dir string) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{
		ServerName: "conformance", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir,
		MaxPayload: maxPayload, NoSigs: true, NoLog: true, PingInterval: 2 * time.Second, MaxPingsOut: 2,
	})
	if err != nil {
		return nil, fmt.Errorf("nats-server: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		s.Shutdown()
		return nil, errors.New("nats-server accepts no connections within a minute")
	}
	return s, nil
}

// Connect returns a connection for responders, which lasts as long as its server.
func Connect(url string) (*nats.Conn, error) {
	return nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(time.Minute))
}
