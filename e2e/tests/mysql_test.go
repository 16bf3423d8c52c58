package tests

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/subjects"
)

func TestWithoutAGuardTheTableAloneServes(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	c := e2e.Start(t, e2e.WithWorkers(2), configured(func(i int, cfg *app.Config) {
		inNoHurry(i, cfg)
		cfg.MySQL, cfg.Guard = db.DSN(), false
	}))
	l := startLoad(t, c.Conn, 4, map[string]string{"segment": "id.segment.order"})
	waitFor(t, "load", func() bool { return l.got["segment"].len() > 20_000 })
	if errs := l.stop(); len(errs) > 0 {
		t.Error(errs[0])
	}
	l.check(t)
	js, err := jetstream.New(c.Conn, jetstream.WithDefaultTimeout(2*patience))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "id_segments")
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := kv.Keys(t.Context()); err != nil || len(keys) != 1 || keys[0] != "_natsid" {
		t.Fatalf("%q, %v, want an identity, and no marks", keys, err)
	}
	out := fails(t, "--nats", c.URL, "--data", t.TempDir())
	if !strings.Contains(out, "another kind of store") {
		t.Errorf("a worker without --mysql beside them: %s", out)
	}
	c.StopWorker(0)
	c.StopWorker(1)
	cfg := configOn(t, c.URL, t.TempDir())
	cfg.MySQL = db.DSN()
	startWith(t, cfg)
	waitFor(t, "the guard is on", ok("http://"+cfg.HTTP+"/readyz"))
	getIDs(t, c.Conn, subjects.DefaultNamespace, "fresh") // created on first use: the marks are original
}

func TestAStartWaitsForTheDatabaseButNotForAPassword(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	db.Stop()
	p := launchProcess(t, "--listen", freePort(t), "--data", t.TempDir(), "--mysql", db.DSN(), "--log-level", "warn")
	waitFor(t, "the start finds no database", func() bool { return strings.Contains(p.log.String(), "trying again") })
	db.Run()
	p.waitReady(t)
	wrong := strings.Replace(db.DSN(), ":", ":wrong-", 1)
	out := fails(t, "--listen", freePort(t), "--data", t.TempDir(), "--mysql", wrong)
	if !strings.Contains(out, "cannot use MySQL") || strings.Contains(out, "wrong-") {
		t.Errorf("a wrong password: %s", out)
	}
}
