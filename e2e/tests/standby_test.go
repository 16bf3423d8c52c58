package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/tcpproxy"
)

// A trio is three workers on one NATS and one store.
type trio struct {
	t        *testing.T
	nc       *nats.Conn
	ids      *client.Client
	monitors [3]string
	tags     int // that were requested
}

// startTrio starts three workers, each with the settings that configure leaves.
func startTrio(t *testing.T, url string, configure func(i int, cfg *app.Config)) *trio {
	t.Helper()
	r := &trio{t: t, nc: connectTo(t, url)}
	r.ids = client.New(r.nc)
	for i := range r.monitors {
		cfg := configOn(t, url, t.TempDir())
		cfg.Name = fmt.Sprint("worker-", i)
		log := slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})
		cfg.Log = slog.New(log).With("worker", i)
		configure(i, &cfg)
		r.monitors[i] = "http://" + cfg.HTTP
		startWith(t, cfg)
	}
	return r
}

var answeredSegments = regexp.MustCompile(`natsid_requests_total\{code="\d+",mode="segment"\} (\d+)`)

// answered returns how many requests for segments a worker has answered.
func (r *trio) answered(i int) (n int) {
	_, figures := get(r.monitors[i] + "/metrics")
	for _, m := range answeredSegments.FindAllStringSubmatch(figures, -1) {
		k, err := strconv.Atoi(m[1])
		if err != nil {
			r.t.Fatal(err)
		}
		n += k
	}
	return n
}

// share requests IDs of n tags that no worker knows, each until it is served, and returns how many requests each
// worker has answered.
func (r *trio) share(n int) (shares [3]int) {
	r.t.Helper()
	for i := range shares {
		shares[i] = -r.answered(i)
	}
	var callers sync.WaitGroup // at once: on a busy machine each takes long
	for range n {
		r.tags++
		tag := fmt.Sprint(path.Base(r.t.Name()), r.tags) // of the test: tests may share a database
		callers.Go(func() {
			ask := func() bool {
				_, err := request(r.nc, "id.segment."+tag, 1, 10*time.Second) // once: a client would ask again
				return err == nil
			}
			for until := time.Now().Add(2 * patience); !ask(); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(until) {
					r.t.Errorf("no ID of %s", tag)
					return
				}
			}
		})
	}
	callers.Wait()
	for i := range shares {
		shares[i] += r.answered(i)
	}
	return shares
}

// enough requests miss none of three workers, unless it has left: once in 60,000 times.
const enough = 30

// waitLeft waits until requests go to the workers 1 and 2, and not to worker 0.
func (r *trio) waitLeft() {
	r.t.Helper()
	waitFor(r.t, "worker 0 has left", func() bool {
		s := r.share(enough)
		return s[0] == 0 && s[1] > 0 && s[2] > 0
	})
	waitFor(r.t, "worker 0 says why it is not ready", func() bool {
		code, text := get(r.monitors[0] + "/readyz")
		return code == 503 && strings.Contains(text, "segment: not ready")
	})
}

// waitAll waits until requests go to all workers.
func (r *trio) waitAll() {
	r.t.Helper()
	waitFor(r.t, "all workers serve", func() bool {
		s := r.share(enough)
		return s[0] > 0 && s[1] > 0 && s[2] > 0
	})
	for i, m := range r.monitors {
		waitFor(r.t, fmt.Sprintf("worker %d is ready", i), ok(m+"/readyz"))
	}
}

// A valve is a TCP proxy through which nothing passes while it is shut. Connections stay open.
type valve struct{ shut atomic.Bool }

// startValve starts one, and returns its address.
func startValve(t *testing.T, target string) (v *valve, addr string) {
	t.Helper()
	v = new(valve)
	p, err := tcpproxy.Start(target, func(ctx context.Context, client, server *net.TCPConn) {
		ctx, cancel := context.WithCancel(ctx)
		context.AfterFunc(ctx, func() { client.Close(); server.Close() })
		var both sync.WaitGroup
		defer both.Wait()
		both.Go(func() { defer cancel(); v.pass(ctx, client, server) })
		both.Go(func() { defer cancel(); v.pass(ctx, server, client) })
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return v, p.Addr()
}

func (v *valve) pass(ctx context.Context, to, from net.Conn) {
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		for v.shut.Load() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func TestAWorkerThatIsCutOffFromItsDatabaseLeavesUntilItIsBack(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	link := mysqltest.Proxy(t, db.Addr())
	v, valved := startValve(t, db.Addr())
	for how, way := range map[string]struct {
		addr      string
		guard     bool
		cut, heal func()
	}{
		"refused": {
			link.Addr(), true,
			func() { link.Refuse(true); link.Drop() }, func() { link.Refuse(false) },
		},
		"silent":    {valved, true, func() { v.shut.Store(true) }, func() { v.shut.Store(false) }},
		"unguarded": {valved, false, func() { v.shut.Store(true) }, func() { v.shut.Store(false) }},
	} {
		t.Run(how, func(t *testing.T) {
			srv := startNATS(t, freePort(t), t.TempDir())
			r := startTrio(t, srv.ClientURL(), func(i int, cfg *app.Config) {
				if cfg.MySQL, cfg.Guard = db.DSN(), way.guard; i == 0 {
					cfg.MySQL = strings.Replace(cfg.MySQL, db.Addr(), way.addr, 1)
				}
			})
			r.waitAll()
			way.cut()
			r.waitLeft()
			way.heal()
			r.waitAll()
		})
	}
}

// The connection over which a worker loads can be lost alone: the others have theirs to other servers.
func TestAWorkerThatIsCutOffFromJetStreamLeavesUntilItIsBack(t *testing.T) {
	t.Parallel()
	srv := startNATS(t, freePort(t), t.TempDir())
	control := startProxy(t, srv.ClientURL())
	r := startTrio(t, srv.ClientURL(), func(i int, cfg *app.Config) {
		if i == 0 {
			cfg.NATS = control.URL()
		}
	})
	r.waitAll()
	control.Stall(true, "natsid control")
	r.waitLeft()
	control.Pass()
	r.waitAll()
}

func TestAWorkerWithoutTheRightToWriteMarksLeavesAndAnswersNobody(t *testing.T) {
	t.Parallel()
	denied := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$KV.id_segments.>"}}}
	s := launch(t, &server.Options{JetStream: true, Users: []*server.User{
		{Username: "worker", Password: "p"}, {Username: "denied", Password: "p", Permissions: denied},
	}})
	url := func(user string) string { return "nats://" + user + ":p@" + s.Addr().String() }
	// A bucket that a worker makes without this right has no identity, and no other worker takes it.
	monitor, stop := startOn(t, url("worker"), t.TempDir())
	waitFor(t, "the buckets are made", ok(monitor+"/readyz"))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	r := startTrio(t, url("worker"), func(i int, cfg *app.Config) {
		if i == 0 {
			cfg.NATS = url("denied")
		}
	})
	heard, err := r.nc.SubscribeSync(nats.InboxPrefix + ">") // answers among others
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(patience)
	for answers := 0; answers < 3; { // one a second: worker 0 would serve by then
		m, err := heard.NextMsg(time.Until(until))
		if err != nil {
			t.Fatalf("after %d answers: %v", answers, err)
		}
		var said struct {
			CanLoad  bool `json:"can_load"`
			Instance string
		}
		if json.Unmarshal(m.Data, &said) == nil && said.CanLoad {
			answers++
			if said.Instance == "worker-0" {
				t.Errorf("worker 0 answers %s", m.Data)
			}
		}
	}
	r.waitLeft()
}

func TestWhereNobodyCanLoadAllServeFromMemoryToTheLastID(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	srv := startNATS(t, freePort(t), t.TempDir())
	r := startTrio(t, srv.ClientURL(), func(_ int, cfg *app.Config) {
		cfg.MySQL, cfg.MaxStep, cfg.AutoStep = db.DSN(), 1, 50
	})
	r.waitAll()
	var served atomic.Int64
	ask := func() {
		if _, err := request(r.nc, "id.segment.order", 1, patience); err == nil {
			served.Add(1)
		}
	}
	// inMemory returns how many IDs all workers have, and whether each has two ranges.
	inMemory := func() (left int64, full bool) {
		workers, err := r.ids.Workers(patient(t))
		if err != nil || len(workers) != 3 {
			return -1, false
		}
		full = true
		for _, w := range workers {
			for _, tag := range w.Busiest {
				if tag.Tag == "order" {
					left += tag.Left
					full = full && len(tag.Ranges) == 2
				}
			}
		}
		return left, full
	}
	waitFor(t, "two ranges on each worker", func() bool {
		for range 10 {
			ask()
		}
		left, full := inMemory()
		return full && left >= 3*50
	})
	before := served.Load()
	db.Kill()
	var left int64
	waitFor(t, "each worker says what it has", func() bool { left, _ = inMemory(); return left >= 0 })
	for i, m := range r.monitors {
		waitFor(t, fmt.Sprintf("worker %d knows that nothing can be loaded", i), func() bool {
			ask()
			code, text := get(m + "/readyz")
			return code == 503 && strings.Contains(text, "segment: not ready: nothing can be loaded")
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 30 {
		callers.Go(func() {
			for ctx.Err() == nil {
				ask()
			}
		})
	}
	waitFor(t, "the last ID", func() bool { left, _ := inMemory(); return left == 0 })
	cancel()
	callers.Wait()
	if n := served.Load() - before; n != left {
		t.Errorf("%d IDs were in memory when the database went away, and %d were served", left, n)
	}
	db.Run()
	r.waitAll()
}
