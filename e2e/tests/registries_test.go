package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/tcpproxy"
	"github.com/natsid/natsid/internal/testkit/wait"
)

// startSites starts a hub and a leaf node, each with a JetStream of its own, and the link between them, which is down.
func startSites(t *testing.T) (hub, leaf string, link *tcpproxy.Proxy) {
	t.Helper()
	center := launch(t, &server.Options{
		ServerName: "hub", JetStream: true, JetStreamDomain: "hub", SyncAlways: true,
		LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: server.RANDOM_PORT},
	})
	link, err := tcpproxy.Start(leafAddress(t, center), pass)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	link.Refuse(true)
	edge := launch(t, &server.Options{
		ServerName: "leaf", JetStream: true, JetStreamDomain: "leaf", SyncAlways: true,
		LeafNode: server.LeafNodeOpts{
			ReconnectInterval: 100 * time.Millisecond,
			Remotes: []*server.RemoteLeafOpts{{
				URLs:                    []*url.URL{{Scheme: "nats-leaf", Host: link.Addr()}},
				IgnoreDiscoveredServers: true, // it reconnects by the proxy alone
			}},
		},
	})
	return center.ClientURL(), edge.ClientURL(), link
}

func leafAddress(t *testing.T, s *server.Server) string {
	t.Helper()
	v, err := s.Varz(nil)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", v.LeafNode.Port)
}

// pass copies both ways.
func pass(_ context.Context, client, server *net.TCPConn) {
	var both sync.WaitGroup
	for _, p := range [][2]*net.TCPConn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(p[0], p[1])
			p[0].Close()
		})
	}
	both.Wait()
}

// A siteWorker is a worker whose readiness is looked at.
type siteWorker struct {
	http string
	log  natstest.Buffer
	data string
	stop func()
}

// startAt starts a worker that joins a NATS, with defaults but for what the test must know.
func startAt(t *testing.T, natsURL string, edits ...func(*app.Config)) *siteWorker {
	t.Helper()
	w := &siteWorker{http: freePort(t), data: filepath.Join(t.TempDir(), "data")}
	w.run(t, natsURL, edits...)
	return w
}

func (w *siteWorker) run(t *testing.T, natsURL string, edits ...func(*app.Config)) {
	cfg := configOn(t, natsURL, w.data)
	cfg.HTTP, cfg.Replicas = w.http, 1
	cfg.Log = slog.New(slog.NewTextHandler(&w.log, nil))
	for _, edit := range edits {
		edit(&cfg)
	}
	stop := startWith(t, cfg)
	w.stop = sync.OnceFunc(func() {
		if err := stop(); err != nil {
			t.Errorf("worker: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the worker at %s:\n%s", natsURL, w.log.String())
		}
	})
	t.Cleanup(w.stop)
}

// readyz returns what /readyz says, and whether it is 200.
func (w *siteWorker) readyz() (text string, ready bool) {
	code, text := get("http://" + w.http + "/readyz")
	return text, code == http.StatusOK
}

func (w *siteWorker) waitReady(t *testing.T) {
	t.Helper()
	wait.Until(t, "a worker that is ready", func() bool { _, ok := w.readyz(); return ok })
}

func TestARegistryThatIsPinnedGoesOnWhereAnotherOneIsMet(t *testing.T) {
	t.Parallel()
	hub, leaf, link := startSites(t)
	h1, l1 := startAt(t, hub), startAt(t, leaf)
	h1.waitReady(t)
	l1.waitReady(t)
	pinned := registryOf(t, hub)
	h1.stop()
	h1.run(t, hub, func(cfg *app.Config) { cfg.Registry = pinned })
	h1.waitReady(t)
	getIDs(t, natstest.Connect(t, leaf), "id", "order") // a registry that was never used leaves
	kept, stopped := holderOn(t, hub), holderOn(t, leaf)
	link.Refuse(false)
	wait.Until(t, "the other registry is stopped", func() bool {
		text, ok := l1.readyz()
		return !ok && strings.Count(text, "the registry is stopped: second-registry") == 2
	})
	getIDs(t, natstest.Connect(t, hub), "id", "order")
	h1.waitReady(t)
	for _, url := range []string{hub, leaf} { // on the leaf node NATS prefers the stopped one, which passes requests on
		c := client.Must(client.New(natstest.Connect(t, url), client.Config{FailFast: true}))
		for range 20 {
			if _, err := client.Must(c.Segment("order", client.SegmentConfig{})).Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Must(c.Snowflake(client.SnowflakeConfig{})).Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	wait.Until(t, "a program with a number of the stopped registry is stopped", func() bool {
		_, err := stopped.Next(t.Context())
		return err != nil && strings.Contains(err.Error(), "the registry is stopped, since registry "+pinned)
	})
	if _, err := kept.Next(t.Context()); err != nil {
		t.Error(err)
	}
	if strings.Contains(h1.log.String(), "the registry is stopped") {
		t.Error("the registry that is pinned was stopped")
	}
}

// Marks and worker numbers are in buckets of their own: neither a worker that runs nor one that starts needs marks for
// a snowflake.
func TestAnIncidentOfTheMarksStopsNoSnowflakes(t *testing.T) {
	t.Parallel()
	s := launch(t, &server.Options{JetStream: true, SyncAlways: true})
	soon := func(cfg *app.Config) { cfg.TagPoll = time.Second }
	w := startAt(t, s.ClientURL(), soon)
	w.waitReady(t)
	nc := natstest.Connect(t, s.ClientURL())
	getIDs(t, nc, "id", "order")
	if err := jetStreamOf(t, s).DeleteKeyValue(patient(t), "id_segments"); err != nil {
		t.Fatal(err)
	}
	for _, life := range []string{"that runs", "that starts"} {
		wait.Until(t, "segments are stopped at a worker "+life, func() bool {
			text, _ := w.readyz()
			return strings.Count(text, "the registry is stopped: marks-lost") == 1
		})
		began := time.Now()
		c := client.Must(client.New(nc, client.Config{Timeout: time.Minute}))
		_, err := client.Must(c.Segment("order", client.SegmentConfig{})).Next(t.Context())
		if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(),
			"503: the registry is stopped") || time.Since(began) > patience/2 {
			t.Errorf("a segment of a worker %s: %v after %v", life, err, time.Since(began))
		}
		if _, err := flakes(nc).Next(patient(t)); err != nil {
			text, _ := w.readyz()
			t.Errorf("a snowflake of a worker %s: %v: %s", life, err, text)
		}
		w.stop()
		w.run(t, s.ClientURL(), soon)
	}
}

// registryOf returns the registry of the workers on a NATS.
func registryOf(t *testing.T, url string) string {
	t.Helper()
	var status struct{ Registries []struct{ Registry string } }
	wait.Until(t, "a registry", func() bool {
		var out, errs natstest.Buffer
		cli.Main(t.Context(), []string{"status", "--json", "--nats", url}, &out, &errs)
		return json.Unmarshal([]byte(out.String()), &status) == nil && len(status.Registries) == 1
	})
	return status.Registries[0].Registry
}
