package tests

import (
	"context"
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
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/tcpproxy"
	"github.com/natsid/natsid/subjects"
)

// A twoSites is a hub and a leaf node, each with a JetStream of its own, and the link between them.
type twoSites struct {
	hub, leaf string // addresses for clients
	link      *tcpproxy.Proxy
	nodes     func() int // leaf nodes at the hub
}

// startSites starts both. The link is up or down, and can be changed. What deny matches does not pass it.
func startSites(t *testing.T, up bool, deny ...string) *twoSites {
	t.Helper()
	hub := launch(t, &server.Options{
		ServerName: "hub", JetStream: true, JetStreamDomain: "hub", SyncAlways: true,
		LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: server.RANDOM_PORT},
	})
	link, err := tcpproxy.Start(leafAddress(t, hub), pass)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	link.Refuse(!up)
	leaf := launch(t, &server.Options{
		ServerName: "leaf", JetStream: true, JetStreamDomain: "leaf", SyncAlways: true,
		LeafNode: server.LeafNodeOpts{
			ReconnectInterval: 100 * time.Millisecond,
			Remotes: []*server.RemoteLeafOpts{{
				URLs: []*url.URL{{Scheme: "nats-leaf", Host: link.Addr()}}, DenyImports: deny, DenyExports: deny,
				IgnoreDiscoveredServers: true, // it reconnects by the proxy alone
			}},
		},
	})
	s := &twoSites{hub: hub.ClientURL(), leaf: leaf.ClientURL(), link: link, nodes: hub.NumLeafNodes}
	if up {
		waitFor(t, "the link", func() bool { return leaf.NumLeafNodes() == 1 && hub.NumLeafNodes() == 1 })
	}
	return s
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
	cfg := app.Default()
	cfg.NATS, cfg.HTTP, cfg.Data, cfg.Replicas = natsURL, w.http, w.data, 1
	cfg.AutoCreateTags, cfg.AutoStep = true, 10
	cfg.Log = slog.New(slog.NewTextHandler(&w.log, nil))
	for _, edit := range edits {
		edit(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, cfg) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
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
	resp, err := http.Get("http://" + w.http + "/readyz")
	if err != nil {
		return err.Error(), false
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body), resp.StatusCode == http.StatusOK
}

func (w *siteWorker) waitReady(t *testing.T) {
	t.Helper()
	waitFor(t, "a worker that is ready", func() bool { _, ok := w.readyz(); return ok })
}

// waitYielded waits until the worker serves nothing and says why.
func (w *siteWorker) waitYielded(t *testing.T) {
	t.Helper()
	waitFor(t, "a worker that has yielded", func() bool {
		text, ok := w.readyz()
		return !ok && strings.Count(text, "has yielded to") == 2
	})
}

// A givenIDs is which IDs were given, and when each was asked for.
type givenIDs struct {
	mu    sync.Mutex
	known map[string]map[int64]bool
	asked []time.Time // when each ID was asked for
	twice []time.Time // when a repeated ID was asked for
}

func (g *givenIDs) add(kind string, asked time.Time, runs ...subjects.Run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil {
		g.known = map[string]map[int64]bool{"order": {}, "flake": {}}
	}
	for _, r := range runs {
		for id := r.First; id <= r.Last; id++ {
			if g.known[kind][id] {
				g.twice = append(g.twice, asked)
			}
			g.known[kind][id] = true
			g.asked = append(g.asked, asked)
		}
	}
}

// repeats returns how many IDs were given again to requests made after a moment.
func (g *givenIDs) repeats(after time.Time) int { return g.count(&g.twice, after) }

// since returns how many IDs were given to requests made after a moment.
func (g *givenIDs) since(after time.Time) int { return g.count(&g.asked, after) }

func (g *givenIDs) count(all *[]time.Time, after time.Time) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range *all {
		if t.After(after) {
			n++
		}
	}
	return n
}

// ask requests IDs of both modes at an address until ctx ends. Refusals are what the test expects for a while.
func (g *givenIDs) ask(ctx context.Context, t *testing.T, at string) {
	nc, err := nats.Connect(at, nats.Timeout(patience))
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	for ctx.Err() == nil {
		began := time.Now()
		if runs, err := request(nc, "id.segment.order", 10, 5*time.Second); err == nil {
			g.add("order", began, runs...)
		}
		began = time.Now()
		if runs, err := request(nc, "id.snowflake", 10, 5*time.Second); err == nil {
			g.add("flake", began, runs...)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestAHubAndALeafNodeWithJetStreamOfItsOwnEndAsOneRegistry(t *testing.T) {
	t.Parallel()
	s := startSites(t, false)
	h1, h2, l1 := startAt(t, s.hub), startAt(t, s.hub), startAt(t, s.leaf)
	for _, w := range []*siteWorker{h1, h2, l1} {
		w.waitReady(t)
	}
	var given givenIDs
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	defer callers.Wait()
	defer stop()
	callers.Go(func() { given.ask(ctx, t, s.hub) })
	callers.Go(func() { given.ask(ctx, t, s.leaf) })
	waitFor(t, "IDs of both", func() bool { return given.since(time.Time{}) > 2000 })

	linked := time.Now()
	s.link.Refuse(false)
	l1.waitYielded(t)
	t.Logf("the leaf's worker has yielded %v after the link may stand", time.Since(linked))
	h1.waitReady(t)
	h2.waitReady(t)
	waitFor(t, "the alarm with what was given twice", func() bool {
		return strings.Contains(l1.log.String(), "kind=second-registry") &&
			strings.Contains(l1.log.String(), "of tags order [1, ")
	})
	settled := time.Now()
	waitFor(t, "IDs from the registry that stays", func() bool { return given.since(settled) > 3000 })
	if n := given.repeats(settled); n > 0 {
		t.Errorf("%d IDs repeat after the marks were merged", n)
	}
	t.Logf("%d IDs were given twice before", given.repeats(time.Time{}))

	// An operator wants the other one.
	var rows []string
	waitFor(t, "natsid registry shows both", func() bool {
		rows = registries(t, s.hub)
		return len(rows) == 2 && strings.Contains(strings.Join(rows, "\n"), "yielded to")
	})
	for _, row := range rows {
		if strings.Contains(row, "yielded to") {
			natsid(t, "registry", "adopt", strings.Fields(row)[0], "--nats", s.hub)
		}
	}
	l1.waitReady(t)
	h1.waitYielded(t)
	h2.waitYielded(t)
	settled = time.Now()
	waitFor(t, "IDs from the registry that was adopted", func() bool { return given.since(settled) > 1000 })
	if n := given.repeats(settled); n > 0 {
		t.Errorf("%d IDs repeat after the other registry was adopted", n)
	}

	// The link is lost, and a worker started again: it remembers, until an operator releases it.
	s.link.Refuse(true)
	s.link.Cut()
	h1.stop()
	h1.run(t, s.hub)
	h1.waitYielded(t)
	waitFor(t, "the end of the link", func() bool { return s.nodes() == 0 })
	waitFor(t, "a release", func() bool {
		var out natstest.Buffer
		return cli.Main(t.Context(), []string{"registry", "release", "--nats", s.hub}, &out, t.Output()) == 0
	})
	h1.waitReady(t)
	h2.waitReady(t)
}

// natsid runs a command and returns what it prints. On a busy machine a command may get no answer in its time.
func natsid(t *testing.T, args ...string) (printed string) {
	t.Helper()
	waitFor(t, "an answer to natsid "+args[0], func() bool {
		var out, errs natstest.Buffer
		code := cli.Main(t.Context(), args, &out, &errs)
		if late := code == noAnswer || strings.Contains(errs.String(), "no such registry"); code != 0 && !late {
			t.Fatalf("natsid %q: exit code %d, %s", args, code, errs.String())
		}
		printed = out.String()
		return code == 0
	})
	return printed
}

// registries returns the rows of `natsid registry`.
func registries(t *testing.T, url string) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(natsid(t, "registry", "--nats", url)), "\n")
	return lines[1:]
}

func TestAWorkerBehindALeafNodeYieldsBeforeItServes(t *testing.T) {
	t.Parallel()
	repeats := -1
	for range 4 { // its question is bounded, and a busy machine may outlast that, but not each time
		if repeats = repeatsBehindALeafNode(t); repeats == 0 {
			return
		}
	}
	t.Errorf("%d IDs repeat", repeats)
}

// repeatsBehindALeafNode returns how many IDs repeat while a worker starts behind a leaf node.
func repeatsBehindALeafNode(t *testing.T) int {
	t.Helper()
	s := startSites(t, true)
	h1 := startAt(t, s.hub)
	h1.waitReady(t)
	var given givenIDs
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	defer callers.Wait()
	defer stop()
	callers.Go(func() { given.ask(ctx, t, s.hub) })
	callers.Go(func() { given.ask(ctx, t, s.leaf) })
	waitFor(t, "IDs", func() bool { return given.since(time.Time{}) > 500 })
	l1 := startAt(t, s.leaf)
	l1.waitYielded(t)
	h1.waitReady(t)
	now := time.Now()
	waitFor(t, "more IDs", func() bool { return given.since(now) > 500 })
	return given.repeats(time.Time{})
}

func TestALinkThatDropsTheCallsBetweenRegistriesIsReported(t *testing.T) {
	t.Parallel()
	s := startSites(t, false, "id.registry.of.>", "id.registry.ask")
	h1, h2, l1 := startAt(t, s.hub), startAt(t, s.hub), startAt(t, s.leaf)
	for _, w := range []*siteWorker{h1, h2, l1} {
		w.waitReady(t)
	}
	s.link.Refuse(false)
	waitFor(t, "the smaller one to stop", func() bool {
		text, ready := l1.readyz()
		return !ready && strings.Count(text, "cannot be called") == 2
	})
	for _, w := range []*siteWorker{h1, l1} {
		waitFor(t, "the alarm", func() bool {
			return strings.Contains(w.log.String(), "none of its workers can be called")
		})
	}
	h1.waitReady(t)
	const stops = "and cannot be called"
	if strings.Contains(h1.log.String(), stops) || !strings.Contains(l1.log.String(), stops) {
		t.Error("the larger one stops, or the smaller one does not say why")
	}
}
