package tests

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

// A lossy is three workers on MySQL, of which one can lose the right to write marks, another one MySQL.
type lossy struct {
	*testing.T
	db     *mysqltest.Server
	link   *mysqltest.Link // of the second worker
	server *server.Server
	opts   *server.Options
	urls   []string // of monitors
	caller *nats.Conn
	got    map[string]*given
	last   atomic.Int64 // the highest ID of the strict tag that was answered
}

func startLossy(t *testing.T) *lossy {
	l := &lossy{T: t, db: mysqltest.Start(t), got: map[string]*given{}}
	if _, err := l.db.DB().Exec(leafTable); err != nil {
		t.Fatal(err)
	}
	l.link = mysqltest.Proxy(t, l.db.Addr())
	l.opts = &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Users: l.users(true),
	}
	l.server = launch(t, l.opts.Clone())
	for i, user := range []string{"lesser", "worker", "worker"} {
		cfg := configOn(t, urlOf(l.server, user), t.TempDir())
		if cfg.MySQL = l.db.DSN(); i == 1 {
			cfg.MySQL = strings.Replace(cfg.MySQL, l.db.Addr(), l.link.Addr(), 1)
		}
		cfg.MaxStep = 1 // each worker loads all the time
		inNoHurry(i, &cfg)
		startWith(t, cfg)
		l.urls = append(l.urls, "http://"+cfg.HTTP+"/readyz")
	}
	l.caller = natstest.Connect(t, urlOf(l.server, "admin"))
	for _, url := range l.urls {
		wait.Until(t, "a worker is ready", ok(url))
	}
	for _, body := range []string{`{"tag":"loose","step":1}`, `{"tag":"strict","step":1,"strict":true}`} {
		m, err := l.caller.Request("id.tag.create", []byte(body), patience)
		if err != nil || subjects.ParseError(m.Header) != nil {
			t.Fatal(m, err)
		}
	}
	for _, tag := range []string{"loose", "strict"} {
		l.got[tag] = newGiven(t)
	}
	return l
}

// users returns the users of the server, of which the lesser one may write marks or not.
func (l *lossy) users(mayWrite bool) []*server.User {
	lesser := permitted(rights.Worker)
	if !mayWrite {
		lacking([]string{"$KV.id_segments.>"}, nil)(lesser)
	}
	return []*server.User{
		{Username: "lesser", Password: "p", Permissions: lesser},
		{Username: "worker", Password: "p", Permissions: permitted(rights.Worker)},
		{Username: "admin", Password: "p"},
	}
}

// allow gives the first worker the right to write marks, or takes it.
func (l *lossy) allow(mayWrite bool) {
	opts := l.opts.Clone()
	opts.Users = l.users(mayWrite)
	if err := l.server.ReloadOptions(opts); err != nil {
		l.Fatal(err)
	}
}

// ask sends n requests, one after another for each tag, and returns how many were refused. Those of the strict tag
// must rise.
func (l *lossy) ask(n int) (refused int64) {
	l.Helper()
	var asking sync.WaitGroup
	var failed atomic.Int64
	for tag, got := range l.got {
		for range 3 {
			asking.Go(func() {
				for range n / 6 {
					before := l.last.Load()
					runs, err := request(l.caller, "id.segment."+tag, 1, patience)
					if got.add(runs...); err != nil {
						failed.Add(1)
					} else if tag == "strict" {
						l.rises(before, int64(runs[0].First))
					}
				}
			})
		}
	}
	asking.Wait()
	return failed.Load()
}

// rises checks that an ID of the strict tag is above all that were answered before its request was sent.
func (l *lossy) rises(before, id int64) {
	if id <= before {
		l.Errorf("%d of the strict tag, sent after %d was answered", id, before)
	}
	for last := l.last.Load(); id > last && !l.last.CompareAndSwap(last, id); last = l.last.Load() {
	}
}

// relays reports whether /readyz of a worker says that it relays, and is 200.
func (l *lossy) relays(url string) bool {
	code, text := get(url)
	return code == 200 && strings.Contains(text, "relays: ")
}

func TestOneWorkerThatCanLoadIsEnough(t *testing.T) {
	t.Parallel()
	l := startLossy(t)
	l.ask(600)
	l.allow(false)
	l.link.Refuse(true)
	l.link.Drop()
	wait.Until(t, "both workers that cannot load relay", func() bool {
		l.ask(60)
		return l.relays(l.urls[0]) && l.relays(l.urls[1])
	})
	if refused := l.ask(1500); refused > 0 {
		t.Errorf("%d requests were refused", refused)
	}
	l.db.Kill()
	wait.Until(t, "no worker is ready", func() bool {
		l.ask(6)
		return !slices.ContainsFunc(l.urls, func(url string) bool { return ok(url)() })
	})
	began := time.Now()
	if refused := l.ask(6); refused == 0 || time.Since(began) > patience/2 {
		t.Errorf("of 6 requests %d were refused within %v", refused, time.Since(began))
	}
	l.db.Run()
	l.link.Refuse(false)
	l.allow(true)
	for _, url := range l.urls {
		wait.Until(t, "a worker is ready again", ok(url))
	}
	if refused := l.ask(600); refused > 0 {
		t.Errorf("%d requests were refused afterwards", refused)
	}
	for _, got := range l.got {
		got.check(t)
	}
}
