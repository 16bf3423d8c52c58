package worker_test

import (
	"encoding/json"
	"errors"
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
		info.Zone != "Asia/Shanghai" || info.MaxHole != 100 || info.Hole != 100 {
		t.Fatalf("%+v, %v", made, err)
	}
	zone, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	first, answer := segment.Daily.Base(time.Now().In(zone))+1, r.request("id.segment.so")
	if runs, err := subjects.ParseRuns(answer.Data); err != nil || runs[0].First != first || len(answer.Header) > 0 {
		t.Errorf("the first ID is %s with %v, want %d", answer.Data, answer.Header, first)
	}
}

func (r *rig) request(subject string) *nats.Msg {
	r.Helper()
	m, err := r.caller.Request(subject, nil, 2*time.Second)
	if err != nil {
		r.Fatal(err)
	}
	return m
}

func TestRulesThatCannotHoldAreRefusedWithAReason(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t))
	for _, body := range []string{
		`{"tag":"x","min":5,"max":4}`, `{"tag":"x","min":-1}`, `{"tag":"x","start":4,"min":5}`,
		`{"tag":"x","max_hole":-1}`, `{"tag":"x","period":"weekly"}`, `{"tag":"x","zone":"Asia/Shanghai"}`,
		`{"tag":"x","period":"daily","zone":"Local"}`,
		`{"tag":"x","period":"daily","zone":"Mars/B\u00e4se"}`, `{"tag":"x","period":"daily","max":100000000}`,
	} {
		r.wantRefusal(r.ask("id.tag.create", body), "400")
	}
	if _, err := r.store.Look(t.Context(), "x"); !errors.Is(err, segment.ErrUnknownTag) {
		t.Errorf("the tag: %v", err)
	}
	if got := r.ask("id.tag.create", `{"tag":"x","max":100}`); got.code != "" {
		t.Fatalf("%+v", got)
	}
	r.request("id.segment.x")
	for _, body := range []string{
		`{"tag":"x","max":-1}`, `{"tag":"x","max":10,"step":5,"max_batch":7}`, `{"tag":"x","max":1}`,
	} {
		r.wantRefusal(r.ask("id.tag.update", body), "400")
	}
}
