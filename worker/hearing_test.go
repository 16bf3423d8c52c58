package worker_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/tcpproxy"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// A deafener stands between a worker and its server. While it is on, the server
// does not learn of the subscriptions whose subject has a prefix, and refuses
// nothing: as a server that does not route.
type deafener struct {
	*tcpproxy.Proxy
	on atomic.Bool
}

func startDeafener(t *testing.T, target, prefix string) *deafener {
	t.Helper()
	d := new(deafener)
	sub, other := []byte("SUB "+prefix), []byte("SUB "+strings.Repeat("x", len(prefix)))
	proxy, err := tcpproxy.Start(target, func(ctx context.Context, client, server *net.TCPConn) {
		var both sync.WaitGroup
		both.Go(func() {
			_, _ = io.Copy(client, server)
			client.Close()
		})
		both.Go(func() {
			defer server.Close()
			for lines := bufio.NewReader(client); ; {
				line, err := lines.ReadBytes('\n')
				if d.on.Load() && bytes.HasPrefix(line, sub) {
					copy(line, other)
				}
				if _, failed := server.Write(line); err != nil || failed != nil {
					return
				}
			}
		})
		both.Wait()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	d.Proxy = proxy
	return d
}

// asking returns an edit that lets a worker ask itself, and serve behind a proxy if one is given.
func asking(t *testing.T, url string, proxy *deafener) edit {
	return func(s *segment.Config, cfg *worker.Config) {
		cfg.Ask = connect(t, url)
		if proxy != nil {
			over("nats://"+proxy.Addr())(s, cfg)
		}
	}
}

func TestAWorkerThatItsServerDoesNotRouteToConnectsAgainAndIsNotReady(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	d := startDeafener(t, strings.TrimPrefix(url, "nats://"), "id.snowflake ")
	d.on.Store(true)
	var log natstest.Buffer
	w := start(t, url, 1, newStore(t), asking(t, url, d), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	w.eventually("see that nothing arrives, on each connection", func() bool {
		why := w.worker.Trouble(worker.Snowflake)
		return why != nil && strings.Contains(why.Error(), "no message reaches this worker") && w.dials.Load() > 2
	})
	d.on.Store(false) // the next connection helps
	w.eventually("serve again", func() bool {
		got, err := w.try("id.snowflake", "")
		return err == nil && got.code == "" && w.worker.Trouble(worker.Snowflake) == nil
	})
	for _, line := range []string{
		`msg="not ready: connecting again" mode=snowflake reason=`, `msg="messages arrive again" mode=snowflake`,
	} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log does not say %s:\n%s", line, &log)
		}
	}
}

func TestAnIdleFleetStaysReady(t *testing.T) {
	t.Parallel()
	url, store := startServer(t), newStore(t)
	var fleet []*rig
	for i := range 4 {
		fleet = append(fleet, start(t, url, i%2, store, asking(t, url, nil)))
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for i, r := range fleet {
			for _, mode := range []worker.Mode{worker.Segment, worker.Snowflake} {
				if why := r.worker.Trouble(mode); why != nil {
					t.Fatalf("worker %d, %s: %v", i, mode, why)
				}
			}
		}
	}
	for _, r := range fleet {
		select {
		case a := <-r.answers:
			t.Errorf("a probe counted as a request: %+v", a)
		default:
		}
	}
}

func TestAProbeCostsNoID(t *testing.T) {
	t.Parallel()
	r := start(t, startServer(t), 0, newStore(t))
	before := r.one("id.segment.order")
	for _, probe := range []string{"id.segment.~probe", "id.segment.order", "id.snowflake", "id.snowflake.0"} {
		m := nats.NewMsg(probe)
		m.Data = []byte(subjects.ProbeBody)
		if m, err := r.caller.RequestMsg(m, slack); err != nil || read(m).code != "400" {
			t.Errorf("%s without the header: %v, %v", probe, m, err)
		}
		m.Header.Set(subjects.HeaderProbe, "1")
		if m, err := r.caller.RequestMsg(m, slack); err != nil || len(m.Data) > 0 || read(m).code != "" {
			t.Errorf("%s: %v, %v", probe, m, err)
		}
	}
	if after := r.one("id.segment.order"); after != before+1 {
		t.Errorf("%d after %d", after, before)
	}
}

func TestAReplyOfABystanderIsNoProof(t *testing.T) {
	t.Parallel()
	url, store := startServer(t), newStore(t)
	caller := connect(t, url)
	bystander, err := caller.Subscribe("id.worker.>", func(m *nats.Msg) { _ = m.Respond(append(m.Data, "+ACK"...)) })
	if err != nil {
		t.Fatal(err)
	}
	d := startDeafener(t, strings.TrimPrefix(url, "nats://"), "id.worker.probe-")
	d.on.Store(true)
	r := launch(t, url, 0, store, asking(t, url, d))
	r.eventually("say that no reply arrives", func() bool {
		why := r.worker.Trouble(worker.Segment)
		return why != nil && strings.Contains(why.Error(), "its reply did not arrive")
	})
	if n, err := bystander.Delivered(); err != nil || n == 0 {
		t.Error("the bystander heard no question", err)
	}
	r.eventually("serve all the same, since callers may reach it by other ways", func() bool {
		got, err := r.try("id.segment.order", "")
		return err == nil && got.code == ""
	})
	d.on.Store(false)
	r.eventually("be ready", func() bool { return r.worker.Trouble(worker.Segment) == nil })
}

// Both connections of a worker are lost with their server, and the other one may take longer to come back.
func TestAWorkerThatLostItsConnectionServesAgainBeforeItCanAskItself(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	proxy, err := natsproxy.Start(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	r := start(t, url, 0, newStore(t), asking(t, proxy.URL(), nil), func(_ *segment.Config, cfg *worker.Config) {
		over(url)(nil, cfg)
	})
	r.one("id.snowflake")
	proxy.Stall(true, "")
	lost := time.Now()
	r.conn().Close()
	r.eventually("serve again", func() bool {
		_, err := r.caller.Request("id.snowflake", nil, 100*time.Millisecond) // one on the lost connection is lost
		return r.dials.Load() > 1 && err == nil
	})
	if took := time.Since(lost); took > slowPing {
		t.Errorf("it serves again after %v: it waited for an answer of the other connection", took)
	}
}

// Where ranges cannot be loaded yet another worker is asked, but memory serves if that lasts.
func TestAWorkerThatLostBothConnectionsWaitsAMomentForTheOneOnWhichItLoads(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	proxy, err := natsproxy.Start(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	r := start(t, url, 0, newStore(t), asking(t, proxy.URL(), nil), func(_ *segment.Config, cfg *worker.Config) {
		over(url)(nil, cfg)
	})
	r.one("id.segment.order")
	proxy.Close()
	lost := time.Now()
	r.conn().Close()
	r.eventually("serve from memory", func() bool {
		_, err := r.caller.Request("id.segment.order", nil, 100*time.Millisecond)
		return r.dials.Load() > 1 && err == nil
	})
	if took := time.Since(lost); took < awaitOther {
		t.Errorf("it takes requests after %v", took)
	}
}

const slowPing, awaitOther = 2 * time.Second, 500 * time.Millisecond // as in the code
