package tests

import (
	"context"
	"encoding/json"
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

// waitBoth waits until the worker serves neither mode, and says why of both.
func (w *siteWorker) waitBoth(t *testing.T, why string) {
	t.Helper()
	waitFor(t, "a worker that says twice: "+why, func() bool {
		text, ok := w.readyz()
		return !ok && strings.Count(text, why) == 2
	})
}

// waitStopped waits until the worker has stopped because of a second registry.
func (w *siteWorker) waitStopped(t *testing.T) {
	t.Helper()
	w.waitBoth(t, "the registry is stopped: second-registry")
}

// waitOut waits until the worker is out for another registry.
func (w *siteWorker) waitOut(t *testing.T, keeps string) {
	t.Helper()
	w.waitBoth(t, "registry "+keeps+" serves instead of registry")
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

// callBoth requests IDs at both sites until the test ends, and returns once both give some.
func (s *twoSites) callBoth(t *testing.T) *givenIDs {
	t.Helper()
	given := new(givenIDs)
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	t.Cleanup(func() { stop(); callers.Wait() })
	for _, at := range []string{s.hub, s.leaf} {
		before := given.since(time.Time{})
		callers.Go(func() { given.ask(ctx, t, at) })
		waitFor(t, "IDs", func() bool { return given.since(time.Time{}) > before+1000 })
	}
	return given
}

// waitGiven waits for so many IDs of requests from now on, none of which may be a repeat.
func (g *givenIDs) waitGiven(t *testing.T, n int, when string) {
	t.Helper()
	now := time.Now()
	waitFor(t, "IDs "+when, func() bool { return g.since(now) > n })
	if n := g.repeats(now); n > 0 {
		t.Errorf("%d IDs repeat %s", n, when)
	}
}

// keep resumes a site so that its registry serves.
func (s *twoSites) keep(t *testing.T, at, registry string, flags ...string) {
	t.Helper()
	args := []string{"resume", "--keep", registry, "--yes", "--tags-complete", "--nats", at}
	if code, text := run(t, patient(t), append(args, flags...)...); code != 0 {
		t.Fatalf("resume ended with %d: %s", code, text)
	}
}

func TestAHubAndALeafNodeWithJetStreamOfItsOwnStopUntilOneIsKept(t *testing.T) {
	t.Parallel()
	s := startSites(t, false)
	h1, h2, l1 := startAt(t, s.hub), startAt(t, s.hub), startAt(t, s.leaf)
	all := []*siteWorker{h1, h2, l1}
	for _, w := range all {
		w.waitReady(t)
	}
	hub, leaf := registries(t, s.hub)[0].Registry, registries(t, s.leaf)[0].Registry
	given := s.callBoth(t)
	ahead, began := connectTo(t, s.leaf), time.Now()
	for range 20 { // so that the hub's tag is among IDs of the leaf's
		runs, err := request(ahead, "id.segment.order", 1000, patience)
		if err != nil {
			t.Fatal(err)
		}
		given.add("order", began, runs...)
	}

	linked := time.Now()
	s.link.Refuse(false)
	for _, w := range all {
		w.waitStopped(t)
	}
	t.Logf("all are stopped %v after the link may stand; %d IDs were given twice", time.Since(linked),
		given.repeats(time.Time{}))
	stopped := time.Now()
	alarmed := func(w *siteWorker) bool { return strings.Contains(w.log.String(), "kind=second-registry") }
	waitFor(t, "an alarm of each registry", func() bool { return (alarmed(h1) || alarmed(h2)) && alarmed(l1) })
	waitFor(t, "natsid registry shows two that are stopped", func() bool {
		both := registries(t, s.hub)
		return len(both) == 2 && both[0].State == "stopped" && both[1].State == "stopped"
	})
	code, text := run(t, patient(t), "resume", "--yes", "--nats", s.hub)
	if code != 2 || !strings.Contains(text, "--keep") {
		t.Errorf("without a choice it ended with %d: %s", code, text)
	}
	nc := connectTo(t, s.hub)
	for _, subject := range []string{"id.segment.order", "id.snowflake"} {
		if runs, err := request(nc, subject, 1, patience); err == nil {
			t.Errorf("%s is served while both are stopped: %v", subject, runs)
		}
	}
	if n := given.since(stopped); n > 0 {
		t.Errorf("%d IDs are given while both are stopped", n)
	}

	// Of two operators who decide otherwise at the same moment none, or one, is obeyed.
	kept := make(chan int, 2)
	for at, registry := range map[string]string{s.hub: hub, s.leaf: leaf} {
		go func() {
			code, _ := run(t, patient(t), "resume", "--keep", registry, "--yes", "--tags-complete", "--nats", at)
			kept <- code
		}()
	}
	if one, other := <-kept, <-kept; one == 0 && other == 0 {
		t.Error("two operators were both told that their registry serves")
	}
	s.keep(t, s.hub, hub)
	h1.waitReady(t)
	h2.waitReady(t)
	l1.waitOut(t, hub)
	given.waitGiven(t, 3000, "after the hub's registry was kept")

	// What is out stays out, whoever is reached, until an operator decides otherwise.
	s.link.Refuse(true)
	s.link.Cut()
	l1.stop()
	l1.run(t, s.leaf)
	l1.waitOut(t, hub)
	s.link.Refuse(false)
	waitFor(t, "the link", func() bool { return s.nodes() == 1 })
	waitFor(t, "both answer", func() bool { return len(registries(t, s.leaf)) == 2 })
	code, text = run(t, patient(t), "resume", "--restored", "--since=1h", "--yes", "--nats", s.leaf)
	if code != 2 || !strings.Contains(text, "is out: registry "+hub+" serves instead") {
		t.Errorf("a resume of the registry that is out ended with %d: %s", code, text)
	}
	s.keep(t, s.leaf, leaf, "--since", "1h")
	l1.waitReady(t)
	h1.waitOut(t, leaf)
	h2.waitOut(t, leaf)
	given.waitGiven(t, 1000, "after the leaf's registry was kept")
}

func TestARegistryThatIsPinnedGoesOnWhereAnotherOneIsMet(t *testing.T) {
	t.Parallel()
	s := startSites(t, false)
	h1, l1 := startAt(t, s.hub), startAt(t, s.leaf)
	h1.waitReady(t)
	l1.waitReady(t)
	hub := registries(t, s.hub)[0].Registry
	h1.stop()
	h1.run(t, s.hub, func(cfg *app.Config) { cfg.Registry = hub })
	h1.waitReady(t)
	given := s.callBoth(t)
	s.link.Refuse(false)
	l1.waitStopped(t)
	given.waitGiven(t, 3000, "while the other one is stopped")
	h1.waitReady(t)
	if strings.Contains(h1.log.String(), "the registry is stopped") {
		t.Error("the registry that is pinned was stopped")
	}
}

// natsid runs a command and returns what it prints. On a busy machine a command may get no answer in its time.
func natsid(t *testing.T, args ...string) (printed string) {
	t.Helper()
	waitFor(t, "an answer to natsid "+args[0], func() bool {
		var out, errs natstest.Buffer
		code := cli.Main(t.Context(), args, &out, &errs)
		if code != 0 && code != noAnswer {
			t.Fatalf("natsid %q: exit code %d, %s", args, code, errs.String())
		}
		printed = out.String()
		return code == 0
	})
	return printed
}

// A registryRow is one of those that `natsid registry` lists.
type registryRow struct{ Registry, State string }

func registries(t *testing.T, url string) (rows []registryRow) {
	t.Helper()
	if err := json.Unmarshal([]byte(natsid(t, "registry", "--json", "--nats", url)), &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestARegistryThatWasNeverUsedLeavesBeforeItServes(t *testing.T) {
	t.Parallel()
	var why string
	for range 4 { // its question is bounded, and a busy machine may outlast that, but not each time
		if why = startsBehindALeafNode(t); why == "" {
			return
		}
	}
	t.Error(why)
}

// startsBehindALeafNode starts a worker behind a leaf node of a registry that serves, and returns what went wrong.
func startsBehindALeafNode(t *testing.T) (why string) {
	t.Helper()
	s := startSites(t, true)
	h1 := startAt(t, s.hub)
	h1.waitReady(t)
	given := s.callBoth(t)
	hub := registries(t, s.hub)[0].Registry
	l1 := startAt(t, s.leaf)
	l1.waitOut(t, hub)
	if strings.Contains(l1.log.String(), "msg=serving mode=segment") {
		return "it served before it left"
	}
	now := time.Now()
	waitFor(t, "more IDs, or a stop", func() bool {
		return given.since(now) > 500 || strings.Contains(h1.log.String(), "the registry is stopped")
	})
	switch n := given.repeats(time.Time{}); {
	case n > 0:
		return fmt.Sprintf("%d IDs repeat", n)
	case strings.Contains(h1.log.String(), "the registry is stopped"):
		return "the registry that served was stopped, too"
	}
	return ""
}

func TestALinkThatDropsTheCallsBetweenRegistriesStopsBoth(t *testing.T) {
	t.Parallel()
	s := startSites(t, false, "id.registry.of.>", "id.registry.ask")
	all := []*siteWorker{startAt(t, s.hub), startAt(t, s.hub), startAt(t, s.leaf)}
	for _, w := range all {
		w.waitReady(t)
	}
	s.callBoth(t) // one that was never used leaves
	s.link.Refuse(false)
	for _, w := range all {
		w.waitStopped(t)
	}
}
