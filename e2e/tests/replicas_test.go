package tests

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/app"
)

// gracePeriod is how long a server in lame duck mode keeps its clients: long
// enough for workers on a busy machine to move by themselves.
const gracePeriod = 15 * time.Second

// startServers starts a JetStream cluster of three nats-servers in this
// process and waits until it can place three replicas.
func startServers(t *testing.T) (servers []*server.Server, urls string) {
	t.Helper()
	var routes []string
	for range 3 {
		routes = append(routes, "nats://"+freePort(t))
	}
	var clients []string
	for i, route := range routes {
		u, err := url.Parse(route)
		if err != nil {
			t.Fatal(err)
		}
		var port int
		if _, err := fmt.Sscan(u.Port(), &port); err != nil {
			t.Fatal(err)
		}
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("s%d", i), Host: "127.0.0.1", Port: server.RANDOM_PORT,
			JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, NoSigs: true, NoLog: true,
			Cluster:             server.ClusterOpts{Name: "e2e", Host: "127.0.0.1", Port: port},
			Routes:              server.RoutesFromStr(strings.Join(routes, ",")),
			LameDuckGracePeriod: gracePeriod, LameDuckDuration: gracePeriod + 2*time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		go s.Start()
		t.Cleanup(s.WaitForShutdown)
		t.Cleanup(s.Shutdown)
		servers = append(servers, s)
	}
	for _, s := range servers {
		if !s.ReadyForConnections(patience) {
			t.Fatal("a server does not start")
		}
		clients = append(clients, s.ClientURL())
	}
	waitFor(t, "a leader of three servers", func() bool {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3 {
				return true
			}
		}
		return false
	})
	return servers, strings.Join(clients, ",")
}

func TestOnThreeReplicasAServerMayStop(t *testing.T) {
	t.Parallel()
	servers, urls := startServers(t)
	c := e2e.Start(t, e2e.WithWorkers(3), configured(func(_ int, cfg *app.Config) { cfg.NATS = urls }))
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	leader := ""
	for _, bucket := range []string{"id_segments", "id_history", "id_workers"} {
		waitFor(t, "the leader of bucket "+bucket, func() bool {
			s, err := js.Stream(t.Context(), "KV_"+bucket)
			if err != nil {
				return false // an election, most likely
			}
			if got := s.CachedInfo().Config.Replicas; got != 3 {
				t.Errorf("bucket %s has %d replicas, want 3 on a cluster", bucket, got)
			}
			leader = s.CachedInfo().Cluster.Leader
			return leader != ""
		})
	}
	l := startLoadWithin(t, 2*time.Second, nc, 3, bothModes)
	total := func() int64 { return l.got["segment"].len() + l.got["snowflake"].len() }
	waitFor(t, "load", func() bool { return total() > 20_000 })
	for _, s := range servers {
		if s.Name() == leader {
			s.Shutdown()
		}
	}
	before := total()
	waitFor(t, "load after the leader has gone", func() bool { return total() > before+20_000 })
	// Requests that the stopped server had taken in may be lost with it.
	t.Logf("%d requests, %d lost", l.asked.Load(), len(l.stop()))
	l.check(t)
	for i := range 3 {
		c.StopWorker(i)
	}
}

// waitServed waits until a caller's server knows of workers in both modes: it
// learns of those on other servers a moment after they are ready.
func waitServed(t *testing.T, nc *nats.Conn) {
	t.Helper()
	for _, subject := range bothModes {
		waitFor(t, "an answer on "+subject, func() bool {
			_, err := nc.Request(subject, nil, patience)
			return err == nil
		})
	}
}

// servedBy returns how many connections of workers that serve requests a server
// has.
func servedBy(t *testing.T, s *server.Server) (n int) {
	t.Helper()
	all, err := s.Connz(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all.Conns {
		if c.Name == "natsid" {
			n++
		}
	}
	return n
}

func TestAServerInLameDuckModeCostsNoRequest(t *testing.T) {
	t.Parallel()
	servers, urls := startServers(t)
	stopping := servers[1]
	// Two workers are connected to the server that stops; they know the others from
	// that server only.
	c := e2e.Start(t, e2e.WithWorkers(3), configured(func(i int, cfg *app.Config) {
		// A write that the stopping server takes with it fails after two thirds of
		// the deadline, and a worker that moves waits for the requests behind it.
		cfg.Deadline = 6 * time.Second
		// Who waits from the start of a load that is lost is refused: memory outlasts one.
		cfg.AutoStep = 200_000
		cfg.NATS = [...]string{stopping.ClientURL(), stopping.ClientURL(), urls}[i]
	}))
	nc, err := nats.Connect(servers[0].ClientURL(), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	waitServed(t, nc)
	excuses := stands(t)
	l := startLoad(t, nc, 3, bothModes)
	total := func() int64 { return l.got["segment"].len() + l.got["snowflake"].len() }
	waitFor(t, "load", func() bool { return total() > 20_000 })
	begin := time.Now()
	go stopping.LameDuckShutdown()
	waitFor(t, "the workers to have moved", func() bool { return servedBy(t, stopping) == 0 })
	if took := time.Since(begin); took >= gracePeriod {
		t.Errorf("the workers moved after %v, when the server sends them away", took)
	}
	stopping.WaitForShutdown()
	before := total()
	waitFor(t, "load after the server has stopped", func() bool { return total() > before+20_000 })
	if errs := slices.DeleteFunc(l.stop(), excuses); len(errs) > 0 {
		t.Errorf("%d of %d requests failed: %v", len(errs), l.asked.Load(), errs[0])
	}
	l.check(t)
	for i := range 3 {
		c.StopWorker(i)
	}
}
