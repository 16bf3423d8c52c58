package holder_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/holder"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/tcpproxy"
	"github.com/natsid/natsid/snowflake"
)

// pass copies both ways until one end is closed.
func pass(_ context.Context, client, server *net.TCPConn) {
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
}

// While NATS is away a holder issues until its window ends, and says so before.
func TestAHolderSaysThatItsWindowEndsBeforeItDoes(t *testing.T) {
	c := e2e.Start(t, e2e.Config{})
	link, err := tcpproxy.Start(strings.TrimPrefix(c.URL, "nats://"), pass)
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	nc := natstest.Connect(t, "nats://"+link.Addr(), nats.IgnoreDiscoveredServers())
	changes := make(chan error, 100)
	h, err := holder.Open(t.Context(), nc, holder.Config{
		Horizon: 10 * time.Second, OnChange: func(err error) { changes <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	link.Refuse(true)
	link.Cut()
	var told []string
	for issued := time.Now(); ; time.Sleep(time.Millisecond) {
		_, err := h.Next(t.Context())
		if err == nil {
			issued = time.Now()
			continue
		}
		if !errors.Is(err, snowflake.ErrWindow) && !errors.Is(err, snowflake.ErrNoNumber) {
			t.Fatal(err)
		}
		if until := h.Until(); !until.IsZero() && issued.After(until) {
			t.Errorf("an ID at %v, and the window ended at %v", issued, until)
		}
		break
	}
	for len(told) < 2 {
		if err := <-changes; err != nil {
			told = append(told, err.Error())
		}
	}
	if !strings.Contains(told[0], "unless the window is renewed") {
		t.Errorf("told %q", told)
	}
	link.Refuse(false)
	for err := error(nil); ; {
		if err = <-changes; err == nil {
			break
		}
	}
	if _, err := h.Next(t.Context()); err != nil {
		t.Error(err)
	}
}

// A program that was never run leaves no number that rests.
func TestALeaseThatIsNotBegunGivesTheNumberBack(t *testing.T) {
	c := e2e.Start(t, e2e.Config{})
	h, err := holder.Open(t.Context(), c.Conn, holder.Config{Rest: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Lease(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if number, held := h.Number(); held {
		t.Errorf("number %d is held", number)
	}
}
