package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
)

// everyAnswer calls f for every request, beside other subscribers.
func everyAnswer(t *testing.T, nc *nats.Conn, subject string, f func(*nats.Msg)) {
	t.Helper()
	if _, err := nc.Subscribe(subject, f); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestEveryWorkerThatAnswersInTimeIsListedByName(t *testing.T) {
	t.Parallel()
	nc := connect(t)
	for i, name := range []string{"w2", "w1", "w3"} {
		everyAnswer(t, nc, "$SRV.STATS.ns", func(m *nats.Msg) {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			answer(t, m, fmt.Sprintf(`{"endpoints":[{"name":"tag-list","data":{}},{"name":"segment","data":{
				"instance":%q,"number":null,"seconds_left":null,
				"busiest":[{"tag":"order","worker":%q,"ranges":[
					{"first":"1","next":"9007199254740993","last":"9007199254740994","current":true}
				]}]}}]}`, name, name))
		})
	}
	// One that does not serve segments at the moment has no figures.
	everyAnswer(t, nc, "$SRV.STATS.ns", func(m *nats.Msg) { answer(t, m, `{"endpoints":[]}`) })
	got, err := client.New(nc, client.Namespace("ns")).Workers(t.Context())
	if err != nil || len(got) != 3 || got[0].Instance != "w1" || got[1].Instance != "w2" || got[2].Instance != "w3" {
		t.Fatalf("%+v, %v", got, err)
	}
	w := got[0]
	if w.Number != nil || !math.IsInf(float64(w.SecondsLeft), 1) || w.Busiest[0].Ranges[0].Next != 9007199254740993 {
		t.Errorf("%+v", w)
	}
}

func TestNoWorkerAndAForeignReplyAreDifferentErrors(t *testing.T) {
	nc := connect(t)
	c := client.New(nc)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	begin := time.Now()
	got, err := c.Workers(ctx)
	if !errors.Is(err, client.ErrNotServed) || !strings.Contains(err.Error(), "$SRV.STATS.id") {
		t.Errorf("%v, %v", got, err)
	}
	if took := time.Since(begin); took > slack {
		t.Errorf("no worker is reported after %v", took)
	}
	for _, body := range []string{
		"7", "[]", "{}", `{"endpoints":[{"name":"segment"}]}`, `{"endpoints":[{"name":"segment","data":7}]}`,
	} {
		everyAnswer(t, nc, "$SRV.STATS.id", func(m *nats.Msg) { answer(t, m, body) })
		if got, err := c.Workers(t.Context()); !errors.Is(err, client.ErrNotNatsid) {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
}
