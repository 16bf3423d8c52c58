package natsproxy_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natstest.Left()...) }

func TestADelayDelaysBothWays(t *testing.T) {
	p, err := natsproxy.Start(natstest.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	nc := natstest.Connect(t, p.URL())
	const delay = 100 * time.Millisecond
	p.Delay(delay)
	if rtt, err := nc.RTT(); err != nil || rtt < 2*delay {
		t.Errorf("round trip %v, %v, want %v", rtt, err, 2*delay)
	}
	p.Delay(0)
	wait.Until(t, "a round trip is not delayed", func() bool {
		rtt, err := nc.RTT()
		return err == nil && rtt < 2*delay
	})
}
