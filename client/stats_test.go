package client_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
)

// everyAnswer calls f for every request, whoever else listens.
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
	nc := connect(t)
	for i, name := range []string{"w2", "w1", "w3"} {
		everyAnswer(t, nc, "$SRV.STATS.ns-segment", func(m *nats.Msg) {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			answer(t, m, fmt.Sprintf(`{"endpoints":[{"name":"tag-list","data":{}},{"name":"segment","data":{"instance":%q,"number":null,"seconds_left":null,
				"busiest":[{"tag":"order","worker":%q,"ranges":[{"first":"1","next":"9007199254740993","last":"9007199254740994","current":true}]}]}}]}`, name, name))
		})
	}
	got, err := client.New(nc, "ns").Workers(t.Context())
	if err != nil || len(got) != 3 || got[0].Instance != "w1" || got[1].Instance != "w2" || got[2].Instance != "w3" {
		t.Fatalf("%+v, %v", got, err)
	}
	if w := got[0]; w.Number != nil || !math.IsInf(float64(w.SecondsLeft), 1) || w.Busiest[0].Ranges[0].Next != 9007199254740993 {
		t.Errorf("%+v", w)
	}
}

func TestWorkersThatAreNoneOrNotNatsidsAreToldApart(t *testing.T) {
	nc := connect(t)
	c := client.New(nc, "id")
	begin := time.Now()
	if got, err := c.Workers(t.Context()); !errors.Is(err, client.ErrNotServed) || !strings.Contains(err.Error(), "$SRV.STATS.id-segment") || time.Since(begin) > time.Second {
		t.Errorf("%v, %v after %v", got, err, time.Since(begin))
	}
	for _, body := range []string{"7", "[]", "{}", `{"endpoints":[{"name":"segment"}]}`, `{"endpoints":[{"name":"segment","data":7}]}`} {
		everyAnswer(t, nc, "$SRV.STATS.id-segment", func(m *nats.Msg) { answer(t, m, body) })
		if got, err := c.Workers(t.Context()); !errors.Is(err, client.ErrNotNatsid) {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
}
