package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/freeport"
	"github.com/natsid/natsid/internal/testkit/natsconf"
	"github.com/natsid/natsid/internal/testkit/process"
)

// A NATSServer is a nats-server of a cluster, over all its processes.
type NATSServer struct {
	*process.Process
	Name, Addr string
	dir        string
}

// StartCluster starts n nats-servers, each a process, and returns them also after an error.
func StartCluster(dir string, n int) (servers []*NATSServer, err error) {
	addrs := make([]string, 2*n) // n for clients, n for routes
	for i := range addrs {
		if addrs[i], err = freeport.Get(); err != nil {
			return nil, err
		}
	}
	for i := range n {
		s := &NATSServer{Name: fmt.Sprint("n", i+1), Addr: addrs[i], dir: dir}
		conf := natsconf.Server{Name: s.Name, Listen: s.Addr, Store: filepath.Join(dir, s.Name)}
		conf.More = natsconf.Cluster(i, addrs[n:], false)
		if err := os.WriteFile(s.conf(), []byte(conf.String()), 0o600); err != nil {
			return servers, err
		}
		servers = append(servers, s)
		if err := s.Start(); err != nil {
			return servers, err
		}
	}
	return servers, nil
}

func (s *NATSServer) conf() string { return filepath.Join(s.dir, s.Name+".conf") }

// Start starts a process of the server, and returns when it accepts connections.
func (s *NATSServer) Start() (err error) {
	log := filepath.Join(s.dir, s.Name+".log")
	if s.Process, err = startAs(asNatsServer, log, s.Name, "-c", s.conf()); err != nil {
		return err
	}
	for end := time.Now().Add(startWithin); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", s.Addr)
		switch {
		case err == nil:
			return c.Close()
		case !s.Running():
			text, _ := os.ReadFile(log)
			return fmt.Errorf("nats-server %s has ended: %v\n%s", s.Name, s.Cmd.ProcessState, text)
		case time.Now().After(end):
			return fmt.Errorf("nats-server %s accepts no connections after %v: %w", s.Name, startWithin, err)
		}
	}
}

// URL returns the server's address for NATS clients.
func (s *NATSServer) URL() string { return "nats://" + s.Addr }

// AwaitReplicas returns when n servers have current replicas of each stream, as an operator awaits before the next
// server is stopped.
func AwaitReplicas(ctx context.Context, nc *nats.Conn, n int) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return Await(ctx, "each stream has current replicas", func(ctx context.Context) bool {
		streams, count := js.ListStreams(ctx), 0
		for info := range streams.Info() {
			if count++; !isCurrent(info.Cluster, n) {
				return false
			}
		}
		return streams.Err() == nil && count > 0
	})
}

// Leader returns the name of the server that leads a stream.
func Leader(ctx context.Context, nc *nats.Conn, stream string) (string, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return "", err
	}
	s, err := js.Stream(ctx, stream)
	if err != nil || s.CachedInfo().Cluster == nil {
		return "", err
	}
	return s.CachedInfo().Cluster.Leader, nil
}

func isCurrent(group *jetstream.ClusterInfo, n int) bool {
	return group != nil && group.Leader != "" && len(group.Replicas) == n-1 &&
		!slices.ContainsFunc(group.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline })
}

// Await waits for a condition, which is asked for a second at most each time.
func Await(ctx context.Context, what string, is func(context.Context) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, errors.New("still not: "+what))
	defer cancel()
	for {
		once, done := context.WithTimeout(ctx, time.Second)
		ok := is(once)
		done()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
