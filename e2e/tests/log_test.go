package tests

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

// Without JetStream loads, polls and heartbeats all fail again and again.
func TestAnOutageCostsAFewLinesInTheLog(t *testing.T) {
	t.Parallel()
	addr := freePort(t)
	s := startNATS(t, addr, t.TempDir())
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var log natstest.Buffer
	cfg := configOn(t, s.ClientURL(), t.TempDir())
	cfg.LogJSON, cfg.TagPoll = true, time.Second
	cfg.Log = cfg.NewLog(&log)
	stop := startWith(t, cfg)
	waitFor(t, "the worker is ready", ok("http://"+cfg.HTTP+"/readyz"))
	waitFor(t, "the tags exist", func() bool { return ask(nc, "a") == "" && ask(nc, "b") == "" })
	before := len(log.String())
	away := func() string { return log.String()[before:] }

	began := time.Now()
	s.Shutdown()
	s.WaitForShutdown()
	waitFor(t, "a heartbeat failed", func() bool { return strings.Contains(away(), "a heartbeat failed") })
	startNATS(t, addr, "")
	waitFor(t, "a poll and loads fail", func() bool {
		code := ask(nc, "a") + ask(nc, "b")
		return strings.Contains(away(), "a poll of the tags failed") &&
			strings.Contains(away(), "a load failed") && code == "503503"
	})

	lines := strings.Split(strings.TrimSpace(away()), "\n")
	t.Logf("%d lines in %v", len(lines), time.Since(began))
	if most := 8 * (1 + int(time.Since(began)/time.Minute)); len(lines) > most {
		t.Errorf("%d lines, want %d at most:\n%s", len(lines), most, away())
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) || strings.Contains(line, "outbound buffer") {
			t.Errorf("line %s", line)
		}
	}
	if !strings.Contains(away(), "not connected to NATS") {
		t.Errorf("no line says that NATS is away:\n%s", away())
	}
	if err := stop(); err != nil { // before its server goes
		t.Log(err)
	}
}

// ask requests many IDs of a tag, and returns the code of the error, if that is the
// answer.
func ask(nc *nats.Conn, tag string) (code string) {
	msg, err := nc.Request("id.segment."+tag, []byte("5000"), patience)
	if err != nil {
		return err.Error()
	}
	return msg.Header.Get(subjects.HeaderErrorCode)
}
