package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/natsembed"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// Callers never repeat a request, while one of two workers is stopped again and again. Where the machine stands still,
// the other one is overloaded, says so in its log and leaves for moments: then nobody serves, and callers ask again.
func TestAWorkerThatStopsAnswersEveryRequestDelivered(t *testing.T) {
	t.Parallel()
	url, store := natstest.Start(t), newStore(t)
	store.OnLoad(slowly(3 * time.Millisecond)) // so that many requests are parked
	var log natstest.Buffer
	stays := start(t, url, 0, store, func(_ *segment.Config, cfg *worker.Config) {
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	isOverloaded := func() bool { return strings.Contains(log.String(), "requests are answered late: leaving") }
	calls := callers(t, url, 30, isOverloaded)
	for round := range 6 {
		leaves := start(t, url, 1, store)
		leaves.eventually("take part", func() bool { return len(leaves.answers) > 300 })
		leaves.stop()
		if status := leaves.conn().Status(); status != nats.CLOSED {
			t.Errorf("round %d: the connection is %v, want it closed", round, status)
		}
		close(leaves.answers)
		for a := range leaves.answers {
			if a.Code != wire.OK {
				t.Errorf("round %d: answered %+v", round, a)
			}
		}
	}
	stays.eventually("serve on", func() bool { return calls.done.Load() > 4000 })
	calls.stop(t)
	if t.Failed() {
		t.Logf("the log of the worker that stays:\n%s", &log)
	}
}

// A load is what callers got.
type load struct {
	mayRepeat func() bool // a request that nobody takes

	done   atomic.Int64
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	errs []string
	runs []subjects.Run
}

// callers starts n callers, on a few connections, that request both kinds of IDs
// and repeat only requests that nobody takes, while they may.
func callers(t *testing.T, url string, n int, mayRepeat func() bool) *load {
	l := &load{mayRepeat: mayRepeat}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	t.Cleanup(cancel)
	var conns []*nats.Conn
	for range 4 {
		conns = append(conns, connect(t, url))
	}
	requests := []struct{ subject, body string }{
		{"id.segment.order", ""}, {"id.snowflake", ""}, {"id.segment.order", "7"}, {"id.snowflake.3", "5"},
	}
	for i := range n {
		l.wg.Go(func() {
			for j := i; ctx.Err() == nil; j++ {
				r := requests[j%len(requests)]
				l.call(conns[i%len(conns)], r.subject, r.body)
			}
		})
	}
	return l
}

func (l *load) call(nc *nats.Conn, subject, body string) {
	m, err := nc.Request(subject, []byte(body), time.Minute)
	for errors.Is(err, nats.ErrNoResponders) && l.mayRepeat() {
		time.Sleep(5 * time.Millisecond)
		m, err = nc.Request(subject, []byte(body), time.Minute)
	}
	var runs []subjects.Run
	switch {
	case err != nil:
	case read(m).code != "":
		err = fmt.Errorf("%s %s", read(m).code, read(m).text)
	default:
		runs, err = subjects.ParseRuns(m.Data)
	}
	l.done.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.errs = append(l.errs, subject+": "+err.Error())
	}
	l.runs = append(l.runs, runs...)
}

// stop ends the calls, and checks that no two got the same ID.
func (l *load) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	l.wg.Wait()
	if len(l.errs) > 0 {
		t.Errorf("%d of %d requests failed, such as %s", len(l.errs), l.done.Load(), l.errs[0])
	}
	slices.SortFunc(l.runs, func(a, b subjects.Run) int { return int(max(-1, min(1, a.First-b.First))) })
	for i := 1; i < len(l.runs); i++ {
		if l.runs[i].First <= l.runs[i-1].Last {
			t.Fatalf("%v and %v share an ID", l.runs[i-1], l.runs[i])
		}
	}
	t.Logf("%d requests", l.done.Load())
}

func TestAWorkerAnswersForItsNumberUntilItsLastIDIsIssued(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t), func(cfg *segment.Config, _ *worker.Config) {
		cfg.Deadline, cfg.LoadTimeout = time.Minute, time.Minute
	})
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	r.store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
		<-release
		return load()
	})
	late := make(chan error, 1)
	go func() {
		_, err := r.try("id.segment.order", "")
		late <- err
	}()
	r.eventually("park the request", func() bool { return r.parked() == 1 })
	stopped := make(chan struct{})
	go func() { defer close(stopped); r.stop() }()
	r.eventually("leave the group", func() bool {
		_, err := r.caller.Request("$SRV.INFO.id", nil, time.Second) // what arrives as it leaves has no answer
		return errors.Is(err, nats.ErrNoResponders)
	})
	for range 5 {
		if got := r.ask("id.worker.0", ""); got.body != `{"number":0}` {
			t.Errorf("its identity is %+v", got)
		}
	}
	free()
	<-stopped
	if err := <-late; err != nil {
		t.Error(err)
	}
	if _, err := r.try("id.worker.0", ""); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("after it stopped: %v", err)
	}
}

func TestAWorkerOutlivesItsServer(t *testing.T) {
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, srv.ClientURL(), 0, newStore(t))
	srv.Shutdown()
	srv.WaitForShutdown()
	r.eventually("lose the server", func() bool { return !r.conn().IsConnected() })
	done := make(chan struct{})
	go func() { defer close(done); r.stop() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("a worker whose server is gone does not stop")
	}
}
