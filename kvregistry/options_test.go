package kvregistry_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/kvregistry"
)

// A thousand idle connections cost a server little more than their pings, and a server that hangs is missed after as
// many of them as may be outstanding, and one more.
func TestPingsAreSeldomAndMissAHungServerWithin6s(t *testing.T) {
	opts := nats.GetDefaultOptions()
	for _, set := range kvregistry.Options() {
		if err := set(&opts); err != nil {
			t.Fatal(err)
		}
	}
	if opts.PingInterval < 2*time.Second {
		t.Errorf("a ping each %v, want each 2s or more seldom", opts.PingInterval)
	}
	if missed := opts.PingInterval * time.Duration(opts.MaxPingsOut+1); missed > 6*time.Second {
		t.Errorf("a server that hangs is missed after up to %v, want 6s", missed)
	}
	if opts.ReconnectBufSize != -1 {
		t.Error("writes are buffered while disconnected, and would land late")
	}
}
