package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

func TestRefusedRepliesAreOneLine(t *testing.T) {
	t.Parallel()
	replies := permitted(rights.Worker)
	lacking([]string{"_INBOX.>"}, nil)(replies)
	replies.Response = &server.ResponsePermission{MaxMsgs: 1, Expires: time.Minute}
	s := serverOf(t, map[string]*server.Permissions{"worker": replies, "caller": nil})
	cfg := app.Default()
	cfg.NATS, cfg.Data, cfg.HTTP, cfg.MaxClockSkew = urlOf(s, "worker"), t.TempDir(), freePort(t), time.Millisecond
	var log natstest.Buffer
	cfg.Log = cfg.NewLog(&log)
	startWith(t, cfg)
	wait.Until(t, "a worker is ready", ok("http://"+cfg.HTTP+"/readyz"))
	nc := natstest.Connect(t, urlOf(s, "caller"))
	waitServed(t, nc) // each request with a reply subject of its own
	for range 1000 {
		if err := nc.PublishRequest("id.snowflake", "_INBOX.shared", nil); err != nil {
			t.Fatal(err)
		}
	}
	const line = "NATS refuses a reply"
	wait.Until(t, "a line about refused replies", func() bool { return strings.Contains(log.String(), line) })
	if _, err := flakes(nc).Next(patient(t)); err != nil {
		t.Errorf("after the requests with one reply subject: %v", err)
	}
	if n := strings.Count(log.String(), line); n != 1 {
		t.Errorf("%d lines, want one", n)
	}
}
