package tests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

func TestAWorkerMakesDoWithTheLeastMaxPayload(t *testing.T) {
	t.Parallel()
	s := launch(t, &server.Options{JetStream: true, MaxPayload: worker.MinPayload})
	cfg := app.Default()
	inNoHurry(0, &cfg)
	cfg.NATS, cfg.Data, cfg.HTTP = s.ClientURL(), t.TempDir(), freePort(t)
	cfg.Log = cfg.NewLog(t.Output())
	startWith(t, cfg)
	waitFor(t, "a worker is ready", ok("http://"+cfg.HTTP+"/readyz"))
	nc := connectTo(t, s.ClientURL())
	c, tags := clientOn(nc), 60
	for i := range tags {
		tag := fmt.Sprintf("tag-%02d-%s", i, strings.Repeat("x", subjects.MaxTag-7))
		desc := strings.Repeat("\x01", wire.MaxDescription) // each is six bytes in JSON
		if _, err := c.CreateTag(patient(t), subjects.TagCreate{Tag: tag, Step: 10, Description: desc}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Must(c.Segment(tag, client.SegmentConfig{})).Next(patient(t)); err != nil {
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
	if seen != tags {
		t.Errorf("%d tags are listed, want %d", seen, tags)
	}
	view, err := natstest.Ask[wire.WorkerView](patient(t), nc, wire.View(subjects.DefaultNamespace),
		wire.ViewRequest{Busiest: true})
	if err != nil || len(view.Statistics.Busiest) != wire.MaxBusiest {
		t.Errorf("the view of the worker is %v, %v", view, err)
	}
	var stats micro.Stats
	m, err := nc.Request("$SRV.STATS."+wire.Service(subjects.DefaultNamespace), nil, patience)
	if err != nil || json.Unmarshal(m.Data, &stats) != nil || len(stats.Endpoints) < 8 {
		t.Errorf("the statistics are %+v, %v", stats, err)
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
