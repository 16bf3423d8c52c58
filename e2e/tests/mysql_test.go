package tests

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/subjects"
)

func TestWorkersSurviveACrashOfMySQLAndRepeatNoID(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	c := e2e.Start(t, e2e.WithWorkers(3), configured(func(_ int, cfg *app.Config) { cfg.MySQL = db.DSN() }))
	l := startLoad(t, c.Conn, 4, map[string]string{"segment": "id.segment.order"})
	waitFor(t, "load", func() bool { return l.got["segment"].len() > 20_000 })
	db.Kill()
	db.Run()
	before := l.got["segment"].len()
	waitFor(t, "load after the database is back", func() bool { return l.got["segment"].len() > before+20_000 })
	errs := l.stop()
	for _, err := range errs {
		if !strings.Contains(err.Error(), "503") { // an answer in time, while nothing was left
			t.Error(err)
		}
	}
	t.Logf("%d requests, %d of them 503", l.asked.Load(), len(errs))
	l.check(t)
	var tag string
	var max int64
	err := db.DB().QueryRow("SELECT biz_tag, max_id FROM leaf_alloc").Scan(&tag, &max)
	if err != nil || tag != "order" || max < l.got["segment"].len() {
		t.Errorf("the table has %s at %d, %v", tag, max, err)
	}
}

func TestWithoutMarksMemoryIsServedThen503UntilTheyAreBack(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	var control *natsproxy.Proxy
	c := e2e.Start(t, configured(func(_ int, cfg *app.Config) {
		control = startProxy(t, cfg.NATS)
		cfg.NATS, cfg.MySQL = control.URL(), db.DSN()
		cfg.Deadline = 5 * time.Second // on a busy machine a load may take long
	}))
	var got ledger
	ask := func() error {
		runs, err := request(c.Conn, "id.segment.order", 100, patience) // once: a client would ask again
		got.add(runs...)
		return err
	}
	// On a busy machine a load may outlast any deadline.
	mustAsk := func() { waitFor(t, "IDs", func() bool { return ask() == nil }) }
	for range 15 {
		mustAsk()
	}
	old := db.Snapshot()
	// At least two loads must be missing from the snapshot: with one, the table is
	// back where the marks saw it last. A third was perhaps under way, and is in
	// the snapshot. How many requests that takes depends on the machine, since
	// ranges are loaded ahead and grow.
	for loads := order(t, c).Loads; order(t, c).Loads < loads+3; {
		mustAsk()
	}
	waitFor(t, "a range in memory beside the current one", func() bool { return len(order(t, c).Ranges) == 2 })
	control.Stall(true, "natsid control")
	served, lost, err := 0, 0, error(nil) // lost: with a connection, on a busy machine
	for ; err == nil || errors.Is(err, nats.ErrTimeout) && lost < 3; served++ {
		if err = ask(); errors.Is(err, nats.ErrTimeout) {
			lost++
		}
	}
	if e, ok := errors.AsType[*subjects.Error](err); !ok || e.Code != subjects.Unavailable || served < 2 {
		t.Errorf("after %d batches from memory: %v, want some, then 503", served, err)
	}
	alarm, err := c.Conn.SubscribeSync("id.alarm.>")
	if err != nil {
		t.Fatal(err)
	}
	// A failover to a replica that lost commits, in the same second.
	db.Stop()
	db.Restore(old)
	db.Run()
	control.Pass()
	for range 30 {
		mustAsk()
	}
	got.check(t)
	msg, err := alarm.NextMsg(patience)
	if err != nil {
		t.Fatal(err)
	}
	says := strings.Contains(string(msg.Data), `"message":"tag order: max_id is`)
	if msg.Subject != "id.alarm.table-went-back" || !says {
		t.Errorf("alarm %s: %s", msg.Subject, msg.Data)
	}
	c.StopWorker(0) // before its proxy goes
}

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
