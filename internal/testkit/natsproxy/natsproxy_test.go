package natsproxy_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natstest.Left()...) }

func TestADelayDelaysBothWays(t *testing.T) {
	t.Parallel()
	p := start(t, natstest.Start(t))
	nc := connect(t, p)
	const delay = 100 * time.Millisecond
	p.Delay(delay)
	if rtt, err := nc.RTT(); err != nil || rtt < 2*delay {
		t.Errorf("round trip %v, %v, want %v", rtt, err, 2*delay)
	}
	p.Delay(0)
	waitFor(t, "a round trip without delay", func() bool { rtt, err := nc.RTT(); return err == nil && rtt < 2*delay })
}
