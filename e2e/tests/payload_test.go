package tests

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

func TestAWorkerMakesDoWithASmallMaxPayload(t *testing.T) {
	t.Parallel()
	s := launch(t, &server.Options{JetStream: true, MaxPayload: worker.MinPayload})
	cfg := app.Default()
	inNoHurry(0, &cfg)
	cfg.NATS, cfg.Data, cfg.HTTP = s.ClientURL(), t.TempDir(), freePort(t)
	cfg.Layout = snowflake.JS53 // of short runs
	cfg.Log = cfg.NewLog(t.Output())
	startWith(t, cfg)
	waitFor(t, "a worker is ready", ok("http://"+cfg.HTTP+"/readyz"))
	nc := connectTo(t, s.ClientURL())
	waitFor(t, "a snowflake", func() bool { _, err := nc.Request("id.snowflake", nil, patience); return err == nil })
	wantABatchThatFits(t, nc)
	c, tags := client.New(nc), map[string]bool{}
	for i := range 30 {
		tag := fmt.Sprintf("tag-%02d-%s", i, strings.Repeat("x", subjects.MaxTag-7))
		desc := strings.Repeat("\x01", wire.MaxDescription/10) // each is six bytes in JSON
		if i == 7 {
			desc = strings.Repeat("\x01", wire.MaxDescription)[:100]
		}
		tags[tag] = true
		if _, err := c.CreateTag(patient(t), subjects.TagCreate{Tag: tag, Step: 10, Description: desc}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Segment(tag).Next(patient(t)); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	for after := ""; ; {
		page, err := c.ListTags(patient(t), subjects.TagList{After: after})
		if err != nil {
			t.Fatalf("after %d tags: %v", seen, err)
		}
		if len(page) == 0 {
			break
		}
		seen, after = seen+len(page), page[len(page)-1].Tag
	}
	if seen != len(tags) {
		t.Errorf("%d tags are listed, want %d", seen, len(tags))
	}
	view, err := natstest.Ask[wire.WorkerView](patient(t), nc, wire.View(subjects.DefaultNamespace),
		wire.ViewRequest{Busiest: true})
	if err != nil || view.Statistics.Tags != len(tags) {
		t.Errorf("the view of the worker is %v, %v", view, err)
	}
}

// wantABatchThatFits checks that a batch whose reply is too large is refused with one
// whose reply is not.
func wantABatchThatFits(t *testing.T, nc *nats.Conn) {
	t.Helper()
	_, err := request(nc, "id.snowflake", 40_000, patience)
	e, ok := errors.AsType[*subjects.Error](err)
	if !ok || e.Code != subjects.BadRequest || e.MaxBatch == 0 {
		t.Fatalf("%+v, want 400 and a batch that fits", err)
	}
	runs, err := request(nc, "id.snowflake", e.MaxBatch, patience)
	n := int64(0)
	for _, r := range runs {
		n += r.Len()
	}
	if err != nil || n != int64(e.MaxBatch) {
		t.Errorf("%d IDs, %v; want %d", n, err, e.MaxBatch)
	}
}

func TestAStartEndsBelowTheLeastMaxPayload(t *testing.T) {
	t.Parallel()
	s := launch(t, &server.Options{JetStream: true, MaxPayload: worker.MinPayload - 1})
	code, text := run(t, patient(t), started(t, "--nats="+s.ClientURL())...)
	if code != 1 || !strings.Contains(text, "max_payload") || !strings.Contains(text, fmt.Sprint(worker.MinPayload)) {
		t.Errorf("ended with %d: %s", code, text)
	}
}
