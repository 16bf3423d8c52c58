package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestRefusedRepliesAreOneLine(t *testing.T) {
	t.Parallel()
	replies := permitted(rights.Worker)
	lacking([]string{"_INBOX.>"}, nil)(replies)
	replies.Response = &server.ResponsePermission{MaxMsgs: 1, Expires: time.Minute}
	s := serverOf(t, map[string]*server.Permissions{"worker": replies, "caller": nil})
	cfg := app.Default()
	cfg.NATS, cfg.Data, cfg.HTTP, cfg.MaxClockSkew = urlOf(s, "worker"), t.TempDir(), freePort(t), time.Millisecond
	var log natstest.Buffer
	cfg.Log = cfg.NewLog(&log)
	startWith(t, cfg)
	waitFor(t, "a worker is ready", ok("http://"+cfg.HTTP+"/readyz"))
	nc := connectTo(t, urlOf(s, "caller"))
	waitServed(t, nc) // each request with a reply subject of its own
	for range 1000 {
		if err := nc.PublishRequest("id.snowflake", "_INBOX.shared", nil); err != nil {
			t.Fatal(err)
		}
	}
	const line = "NATS refuses a reply"
	waitFor(t, "a line about refused replies", func() bool { return strings.Contains(log.String(), line) })
	if _, err := flakes(nc).Next(patient(t)); err != nil {
		t.Errorf("after the requests with one reply subject: %v", err)
	}
	if n := strings.Count(log.String(), line); n != 1 {
		t.Errorf("%d lines, want one", n)
	}
}

func TestATagThatMySQLRefusesNamesTheRight(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	table, err := mysqlstore.Login{DSN: db.DSN()}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	table.Close()
	s := launch(t, &server.Options{JetStream: true})
	dsn := db.Limited("leaf_alloc", "SELECT, UPDATE")
	cfg := app.Default()
	cfg.NATS, cfg.Data, cfg.HTTP, cfg.MySQL = s.ClientURL(), t.TempDir(), freePort(t), dsn
	cfg.Log = cfg.NewLog(t.Output())
	startWith(t, cfg)
	waitFor(t, "a worker is ready", ok("http://"+cfg.HTTP+"/readyz"))
	nats := "--nats=" + s.ClientURL()
	const right = "the right INSERT on leaf_alloc"
	if code, text := run(t, patient(t), "tag", "create", "order", nats); code != 3 || !strings.Contains(text, right) {
		t.Errorf("ended with %d, and does not say %q: %s", code, right, text)
	}
	if _, err := db.DB().Exec("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 10)"); err != nil {
		t.Fatal(err)
	}
	if code, text := run(t, patient(t), "tag", "create", "order", nats); code != 0 {
		t.Errorf("beside a row of the operator's it ended with %d: %s", code, text)
	}
	code, text := run(t, patient(t), "tag", "create", "order", nats)
	if code != 3 || !strings.Contains(text, "natsid tag update") {
		t.Errorf("ended with %d, and does not name the command for a tag that exists: %s", code, text)
	}
	few := db.Limited("leaf_alloc", "SELECT")
	code, text = run(t, patient(t), started(t, nats, "--mysql="+few)...)
	if code != 1 || !strings.Contains(text, "UPDATE") {
		t.Errorf("natsid without the right to UPDATE ended with %d: %s", code, text)
	}
}

func TestWithoutJetStreamWorkersSaysSo(t *testing.T) {
	t.Parallel()
	s := launch(t, new(server.Options))
	code, text := run(t, patient(t), "workers", "--nats="+s.ClientURL())
	if code != 1 || !strings.Contains(text, "JetStream") || !strings.Contains(text, "--js-domain") {
		t.Errorf("ended with %d: %s", code, text)
	}
}
