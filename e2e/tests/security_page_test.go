package tests

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// A section is a part of docs/security.md that shows configurations.
type section struct {
	dir   string   // with what its commands wrote
	confs []string // of nats-server
}

// shown runs the page's commands that write files, and returns the configurations of a section.
func shown(t *testing.T, heading string) *section {
	t.Helper()
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/security.md has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	s := &section{dir: t.TempDir()}
	for _, m := range regexp.MustCompile("(?s)```\n(.*?)```").FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(m[1], "natsid ") {
			s.confs = append(s.confs, m[1])
		}
	}
	files := regexp.MustCompile("(?m)^natsid permissions (.*) > (.*)$")
	for _, m := range files.FindAllStringSubmatch(string(page), -1) {
		out := printed(t, strings.Fields(m[1])...)
		if err := os.WriteFile(filepath.Join(s.dir, m[2]), []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// start starts a server with a configuration, on a free port. It logs violations to seen.
func (s *section) start(t *testing.T, name, conf string, seen *violations) *server.Server {
	t.Helper()
	file := filepath.Join(s.dir, name+".conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, conf)
	}
	opts.ServerName, opts.StoreDir = name, t.TempDir()
	srv := launch(t, opts)
	srv.SetLoggerV2(seen, false, false, false)
	return srv
}

// serveOn starts a worker as the pages have it, and returns its log and how to stop it.
func serveOn(t *testing.T, srv *server.Server, dir string) (log *natstest.Buffer, stop func() error) {
	t.Helper()
	cfg := configOn(t, urlOf(srv, "worker"), dir)
	cfg.InboxPrefix, log = "_INBOX_worker", new(natstest.Buffer)
	cfg.Log = cfg.NewLog(log)
	stop = startWith(t, cfg)
	wait.Until(t, "the worker is ready", ok("http://"+cfg.HTTP+"/readyz"))
	return log, stop
}

// getIDs requests one ID of a tag and one snowflake.
func getIDs(t *testing.T, nc *nats.Conn, ns subjects.Namespace, tag string) (id subjects.ID) {
	t.Helper()
	c := client.Must(client.New(nc, client.Config{Namespace: ns}))
	next(t, client.Must(c.Snowflake(client.SnowflakeConfig{})))
	return next(t, client.Must(c.Segment(tag, client.SegmentConfig{})))
}

// next requests an ID until a worker has one: each learns some time later that its registry is not stopped any more.
func next(t *testing.T, h *client.Handle) (id subjects.ID) {
	t.Helper()
	wait.Until(t, "an ID", func() bool {
		var err error
		if id, err = h.Next(patient(t)); err != nil && !errors.Is(err, client.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	return id
}

// Three workers, a caller and an operator need no right but those of the page, also while workers start again.
func TestTheConfigurationOfOneAccountWorks(t *testing.T) {
	t.Parallel()
	page, seen := shown(t, "One account"), new(violations)
	conf := strings.Replace(page.confs[0], "users: [", "users: [\n{ user: admin, password: p }", 1)
	s := page.start(t, "one", conf, seen)
	heard, err := natstest.Connect(t, urlOf(s, "admin")).SubscribeSync(wire.RegistryAnnounce(subjects.DefaultNamespace))
	if err != nil {
		t.Fatal(err)
	}
	const inbox, operator = "--inbox-prefix=_INBOX_worker", "--inbox-prefix=_INBOX_operator"
	third := []string{"--nats", urlOf(s, "worker"), inbox, "--data", t.TempDir(), "--auto-create-tags", "--name=third"}
	killed := startProcess(t, third...)
	_, stopFirst := serveOn(t, s, t.TempDir())
	dir := t.TempDir()
	_, stopSecond := serveOn(t, s, dir)
	shop := natstest.Connect(t, urlOf(s, "shop"), nats.CustomInboxPrefix(shopInbox))
	load := startLoad(t, client.DefaultTimeout, shop, 4, bothModes)
	operate(t, urlOf(s, "operator"), operator)
	killed.signal(syscall.SIGKILL)
	again := startProcess(t, third...)
	if err := stopSecond(); err != nil {
		t.Error(err)
	}
	_, stopSecond = serveOn(t, s, dir)
	operate(t, urlOf(s, "operator"), operator)
	load.stop() // what the killed worker had taken is lost
	load.check(t)
	again.signal(syscall.SIGTERM)
	for _, stop := range []func() error{stopFirst, stopSecond} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := heard.NextMsg(patience); err != nil {
		t.Errorf("no registry was announced: %v", err)
	}
	for mode, l := range load.got {
		if l.n.Load() == 0 {
			t.Errorf("no IDs of mode %s", mode)
		}
	}
	seen.report(t)
}

func TestTheConfigurationOfAnAccountForEachTeamWorks(t *testing.T) {
	t.Parallel()
	page, seen := shown(t, "An account for each team"), new(violations)
	srv := page.start(t, "teams", page.confs[0], seen)
	log, stop := serveOn(t, srv, t.TempDir())
	shop, billing := natstest.Connect(t, urlOf(srv, "shop")), natstest.Connect(t, urlOf(srv, "billing"))
	getIDs(t, shop, "id", "order")
	create := []byte(`{"tag":"billing.invoice","start":"5000"}`)
	if answer, err := billing.Request("ids.tag.create", create, patience); err != nil || len(answer.Data) == 0 {
		t.Errorf("%v, %v", answer, err)
	}
	first := getIDs(t, billing, "ids", "invoice")
	if first < 5000 || first > 5999 {
		t.Errorf("billing got ID %d, want one of the first range, from 5000", first)
	}
	if id := getIDs(t, shop, "id", "billing.invoice"); id <= first || id > 5999 {
		t.Errorf("shop got ID %d of the same tag, want one after %d", id, first)
	}
	if !strings.Contains(log.String(), `msg="tags changed" request=tag-create tag=billing.invoice`) {
		t.Errorf("the log does not say that a tag was created:\n%s", log)
	}
	// Nothing else is reached: nobody listens there in the accounts of the teams.
	for nc, subject := range map[*nats.Conn]string{
		shop: "id.tag.delete", billing: "id.segment.order",
	} {
		if m, err := nc.Request(subject, []byte(`{"tag":"order"}`), patience); err != nats.ErrNoResponders {
			t.Errorf("%s: %v, %v", subject, m, err)
		}
	}
	operate(t, urlOf(srv, "operator"), "--inbox-prefix=_INBOX_operator")
	if err := stop(); err != nil {
		t.Error(err)
	}
	// Callers learn at once that nobody serves.
	if _, err := shop.Request("id.snowflake", nil, patience); err != nats.ErrNoResponders {
		t.Errorf("without a worker: %v", err)
	}
	seen.report(t)
}

func TestTheConfigurationOfALeafNodeWorks(t *testing.T) {
	t.Parallel()
	teams, leaf, seen := shown(t, "An account for each team"), shown(t, "A leaf node"), new(violations)
	_, port, _ := strings.Cut(freePort(t), ":")
	at := func(conf string) string { return strings.ReplaceAll(conf, "7422", port) }
	hub := teams.start(t, "hub", teams.confs[0]+at(leaf.confs[0]), seen)
	edge := leaf.start(t, "edge", at(leaf.confs[1]), seen)
	wait.Until(t, "the link to the hub", func() bool { return edge.NumLeafNodes() == 1 })
	_, stop := serveOn(t, hub, t.TempDir())
	nc := natstest.Connect(t, edge.ClientURL())
	wait.Until(t, "the leaf node knows the services", func() bool {
		_, err := nc.Request("id.snowflake", nil, patience)
		return err == nil
	})
	getIDs(t, nc, "id", "order")
	if m, err := nc.Request("id.tag.delete", []byte(`{"tag":"order"}`), patience); err != nats.ErrNoResponders {
		t.Errorf("a tag is deleted from the leaf node: %v, %v", m, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	seen.report(t)
}
