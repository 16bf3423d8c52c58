package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

func TestTracesOfSlowAndRefusedRequestsAreLogged(t *testing.T) {
	log := new(natstest.Buffer)
	r := start(t, startServer(t), 1, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	})
	n := 0
	traced := func(subject, name string, format string) string {
		n++
		parent := fmt.Sprintf(format, n)
		msg := &nats.Msg{Subject: subject, Header: nats.Header{name: {parent}}}
		if _, err := r.caller.RequestMsg(msg, deadline+slack); err != nil {
			t.Fatal(err)
		}
		return parent
	}
	const form = "00-%032x-00f067aa0ba902b7-01"
	line := func(parent string) string {
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "traceparent="+parent+" ") {
				return line
			}
		}
		return ""
	}

	refused := traced("id.segment.none", "traceparent", form)
	r.eventually("log the refused request", func() bool { return line(refused) != "" })
	for _, want := range []string{"level=INFO", "was refused", "subject=id.segment.none", "code=404", "no such tag"} {
		if !strings.Contains(line(refused), want) {
			t.Errorf("%s lacks %q", line(refused), want)
		}
	}
	other := traced("id.segment.none", "Traceparent", form)
	r.eventually("log it by the other name", func() bool { return line(other) != "" })

	r.store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
		time.Sleep(150 * time.Millisecond)
		return load()
	})
	slow := traced("id.segment.order", "traceparent", form) // the first waits for a load
	r.eventually("log the slow request", func() bool { return strings.Contains(line(slow), "was slow") })

	before := log.String()
	for _, bad := range []string{
		"", "00-%032x-00f067aa0ba902b7-0", "00-%032x 00f067aa0ba902b7-01", "0G-%032x-00f067aa0ba902b7-01",
	} {
		traced("id.segment.none", "traceparent", bad)
	}
	r.ask("id.segment.none", "")
	last := traced("id.segment.none", "traceparent", form) // behind all of them
	r.eventually("log the last request", func() bool { return line(last) != "" })
	if after := strings.TrimPrefix(log.String(), before); strings.Count(after, "was refused") != 1 {
		t.Errorf("a request without a trace is logged:\n%s", after)
	}
}

func TestAFloodOfTracesDoesNotFillTheLog(t *testing.T) {
	log := new(natstest.Buffer)
	r := start(t, startServer(t), 1, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	})
	began := time.Now()
	const all = 900
	for i := range all {
		msg := &nats.Msg{Subject: "id.segment.none", Reply: r.caller.NewInbox(), Header: nats.Header{
			"traceparent": {fmt.Sprintf("00-%032x-00f067aa0ba902b7-01", i)},
		}}
		if err := r.caller.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	for range all {
		<-r.answers
	}
	lines, most := strings.Count(log.String(), "traced"), 20*(2+int(time.Since(began)/time.Second))
	if lines == 0 || lines > most {
		t.Errorf("%d traces are logged of %d, want at most %d", lines, all, most)
	}
}
