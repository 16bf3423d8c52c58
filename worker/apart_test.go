package worker_test

import (
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// loading returns an edit that lets a worker load by way of url.
func loading(t *testing.T, url string) edit {
	return func(_ *segment.Config, cfg *worker.Config) { cfg.Ask = connect(t, url) }
}

// Both connections of a worker are lost with their server, and the other one may take longer to come back.
func TestAWorkerThatLostItsConnectionServesAgainThoughTheOtherOneHangs(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	proxy, err := natsproxy.Start(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	r := start(t, url, 0, newStore(t), loading(t, proxy.URL()), func(_ *segment.Config, cfg *worker.Config) {
		over(url)(nil, cfg)
	})
	r.one("id.snowflake")
	proxy.Stall(true, "")
	for range 5 { // a busy machine takes as long by itself
		lost, before := time.Now(), r.dials.Load()
		r.conn().Close()
		r.eventually("serve again", func() bool {
			_, err := r.caller.Request("id.snowflake", nil, 100*time.Millisecond) // one on the lost connection is lost
			return r.dials.Load() > before && err == nil
		})
		if time.Since(lost) <= slowPing {
			return
		}
	}
	t.Error("it waits for an answer of the other connection")
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
	r := start(t, url, 0, newStore(t), loading(t, proxy.URL()), func(_ *segment.Config, cfg *worker.Config) {
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
