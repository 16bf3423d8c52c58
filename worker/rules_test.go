package worker_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

func TestATagKeepsItsRules(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t))
	made := r.ask("id.tag.create", `{"tag":"so","period":"daily","zone":"Asia/Shanghai","max_hole":"100"}`)
	var info subjects.TagInfo
	if err := json.Unmarshal([]byte(made.body), &info); err != nil || info.Period != "daily" ||
		info.Zone != "Asia/Shanghai" || info.MaxHole != 100 {
		t.Fatalf("%+v, %v", made, err)
	}
	zone, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	first, answer := subjects.ID(segment.Daily.Base(time.Now().In(zone))+1), r.request("id.segment.so")
	if runs, err := subjects.ParseRuns(answer.Data); err != nil || runs[0].First != first || len(answer.Header) > 0 {
		t.Errorf("the first ID is %s with %v, want %d", answer.Data, answer.Header, first)
	}
}

func (r *rig) request(subject string) *nats.Msg {
	r.Helper()
	m, err := r.caller.Request(subject, nil, time.Minute)
	if err != nil {
		r.Fatal(err)
	}
	return m
}
