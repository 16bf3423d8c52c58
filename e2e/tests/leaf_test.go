package tests

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// startHubAndLeaf starts a hub with JetStream in a domain, "" for none, and a leaf
// node of it, and waits until they are linked.
func startHubAndLeaf(t *testing.T, domain string, leaf server.Options) (hub, edge *server.Server) {
	t.Helper()
	port := freePort(t)
	u, err := url.Parse("nats-leaf://" + port)
	if err != nil {
		t.Fatal(err)
	}
	var number int
	if _, err := fmt.Sscan(u.Port(), &number); err != nil {
		t.Fatal(err)
	}
	hub = launch(t, &server.Options{
		ServerName: "hub", JetStream: true, JetStreamDomain: domain,
		LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: number},
	})
	leaf.ServerName = "leaf"
	leaf.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{u}}}
	edge = launch(t, &leaf)
	wait.Until(t, "the link to the hub", func() bool { return edge.NumLeafNodes() == 1 && hub.NumLeafNodes() == 1 })
	return hub, edge
}

func TestAWorkerServesOnALeafNode(t *testing.T) {
	t.Parallel()
	own := server.Options{JetStream: true, JetStreamDomain: "leaf"}
	for name, c := range map[string]struct {
		leaf   server.Options
		domain string // that the worker is given
		onHub  bool   // where the buckets are
	}{
		"from its own JetStream":              {leaf: own},
		"from that of the hub beside its own": {leaf: own, domain: "hub", onHub: true},
		"from that of the hub, having none":   {domain: "hub", onHub: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub, leaf := startHubAndLeaf(t, "hub", c.leaf)
			workers := startConfigured(t, 1, func(_ int, cfg *app.Config) {
				cfg.NATS, cfg.JSDomain = leaf.ClientURL(), c.domain
			})
			owner := leaf
			if c.onHub {
				owner = hub
			}
			checkOneReplica(t, owner)
			caller := natstest.Connect(t, leaf.ClientURL())
			waitServed(t, caller)
			useTags(t, caller)
			workers.StopWorker(0)
			checkReleased(t, owner)
		})
	}
}

func checkOneReplica(t *testing.T, owner *server.Server) {
	t.Helper()
	js := jetStreamOf(t, owner)
	for _, bucket := range []string{"id_segments", "id_history", "id_workers"} {
		s, err := js.Stream(patient(t), "KV_"+bucket)
		if err != nil {
			t.Errorf("bucket %s: %v", bucket, err)
		} else if n := s.CachedInfo().Config.Replicas; n != 1 {
			t.Errorf("bucket %s has %d replicas, want 1", bucket, n)
		}
	}
}

// useTags changes tags, gets IDs, and lists the tags.
func useTags(t *testing.T, nc *nats.Conn) {
	t.Helper()
	c, ctx := clientOn(nc), patient(t)
	if _, err := c.CreateTag(ctx, subjects.TagCreate{Tag: "seat", Step: 10, Start: 101}); err != nil {
		t.Fatal(err)
	}
	for want := subjects.ID(101); want < 131; want++ { // three ranges
		// Once: a client could ask again, which leaves a hole.
		if got, err := request(nc, "id.segment.seat", 1, patience); err != nil || got[0].First != want {
			t.Fatalf("%v, %v, want %d", got, err, want)
		}
	}
	deleted := wire.TagDelete{Tag: "seat"}
	if _, err := natstest.Ask[any](ctx, nc, subjects.DefaultNamespace.TagDelete(), deleted); err != nil {
		t.Error(err)
	}
	page, err := c.ListTags(ctx, subjects.TagList{})
	isThere := func(i subjects.TagInfo) bool { return i.Tag == "seat" && i.Disabled }
	if err != nil || !slices.ContainsFunc(page, isThere) {
		t.Errorf("listed %v, %v", page, err)
	}
}

// checkReleased checks that no heartbeat is left of a worker that has stopped.
func checkReleased(t *testing.T, owner *server.Server) {
	t.Helper()
	kv, err := jetStreamOf(t, owner).KeyValue(patient(t), "id_workers")
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := kv.Keys(patient(t)); !errors.Is(err, jetstream.ErrNoKeysFound) {
		t.Errorf("heartbeats are left: %v, %v", keys, err)
	}
}

func jetStreamOf(t *testing.T, s *server.Server) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(natstest.Connect(t, s.ClientURL()), jetstream.WithDefaultTimeout(2*patience))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestAWorkerServesFromTheJetStreamOfAnotherAccount(t *testing.T) {
	t.Parallel()
	page, seen := shown(t, "JetStream elsewhere"), new(violations)
	s := page.start(t, "accounts", "jetstream {}\nno_auth_user: ids\n"+page.confs[0], seen)
	workers := startConfigured(t, 1, func(_ int, cfg *app.Config) {
		cfg.NATS, cfg.JSPrefix = s.ClientURL(), "JS.store"
	})
	caller := natstest.Connect(t, s.ClientURL())
	waitServed(t, caller)
	useTags(t, caller)
	workers.StopWorker(0)
}
