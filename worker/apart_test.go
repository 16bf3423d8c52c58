package worker_test

import (
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// apart runs a worker that serves on one connection, and loads by way of a proxy.
func apart(t *testing.T) (*rig, *natsproxy.Proxy) {
	url, proxy := startProxied(t)
	return start(t, url, 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Ask = connect(t, proxy.URL())
	}), proxy
}

// Both connections of a worker are lost with their server, and the other one may take longer to come back.
func TestAWorkerThatLostItsConnectionServesAgainThoughTheOtherOneHangs(t *testing.T) {
	t.Parallel()
	r, proxy := apart(t)
	r.one("id.snowflake")
	proxy.Stall(true)
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
	r, proxy := apart(t)
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
