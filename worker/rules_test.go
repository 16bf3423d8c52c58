package worker_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

func TestATagKeepsItsRulesAndItsFormatForCallers(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t))
	const so = "SO-{date:yyyyMMdd}-{id:6}-{check}"
	made := r.ask("id.tag.create",
		`{"tag":"so","period":"daily","zone":"Asia/Shanghai","max_hole":"100","format":"`+so+`"}`)
	var info subjects.TagInfo
	if err := json.Unmarshal([]byte(made.body), &info); err != nil || info.Period != "daily" ||
		info.Zone != "Asia/Shanghai" || info.Format != so || info.MaxHole != 100 || info.Hole != 100 {
		t.Fatalf("%+v, %v", made, err)
	}
	zone, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	first, answer := segment.Daily.Base(time.Now().In(zone))+1, r.request("id.segment.so")
	if runs, err := subjects.ParseRuns(answer.Data); err != nil || runs[0].First != first {
		t.Errorf("the first ID is %s, want %d", answer.Data, first)
	}
	if got := answer.Header.Get(subjects.HeaderFormatRevision); got != subjects.FormatRevision(so) {
		t.Errorf("a parked request was told revision %q", got)
	}
	if got := r.request("id.segment.so").Header.Get(subjects.HeaderFormatRevision); got != subjects.FormatRevision(so) {
		t.Errorf("a request from memory was told revision %q", got)
	}
	if got := r.request("id.segment.order").Header; len(got) > 0 {
		t.Errorf("a tag without a format has the header %v", got)
	}
	var format subjects.TagFormat
	if err := json.Unmarshal(r.request("id.format.so").Data, &format); err != nil ||
		format != (subjects.TagFormat{Tag: "so", Format: so, Revision: subjects.FormatRevision(so)}) {
		t.Errorf("%+v, %v", format, err)
	}
	const wider = "SO/{date:yyyyMMdd}/{id:7}-{check}"
	if got := r.ask("id.tag.update", `{"tag":"so","format":"`+wider+`"}`); got.code != "" {
		t.Fatalf("%+v", got)
	}
	told := r.request("id.segment.so").Header.Get(subjects.HeaderFormatRevision)
	if told != subjects.FormatRevision(wider) {
		t.Errorf("after the change a request was told revision %q", told)
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
		`{"tag":"x","format":"no number"}`, `{"tag":"x","format":"{id}{id:3}"}`, `{"tag":"x","format":"\u00e9{id"}`,
		`{"tag":"x","format":"{date:yyyyMMdd}-{id}"}`, `{"tag":"x","period":"daily","format":"SO-{id:6}"}`,
		`{"tag":"x","period":"monthly","format":"{date:yyyyMMdd}-{id}"}`, `{"tag":"x","min":1000,"format":"A{id:3}0"}`,
	} {
		r.wantRefusal(r.ask("id.tag.create", body), "400")
	}
	if _, err := r.store.Look(t.Context(), "x"); !errors.Is(err, segment.ErrUnknownTag) {
		t.Errorf("the tag: %v", err)
	}
	if got := r.ask("id.tag.create", `{"tag":"x","max":100,"format":"A{id:4}"}`); got.code != "" {
		t.Fatalf("%+v", got)
	}
	r.request("id.segment.x")
	for _, body := range []string{
		`{"tag":"x","max":-1}`, `{"tag":"x","max":10,"step":5,"max_batch":7}`, `{"tag":"x","format":"{id:1}0"}`,
		`{"tag":"x","format":"A1{id:3}"}`, `{"tag":"x","max":1}`,
	} {
		r.wantRefusal(r.ask("id.tag.update", body), "400")
	}
	r.wantRefusal(r.ask("id.format.order", ""), "400")
	r.wantRefusal(r.ask("id.format.unknown", ""), "404")
	r.wantRefusal(r.ask("id.format._natsid", ""), "400")
}

func TestAMaskBoundsATagAndIsNotExchangedUnnoticed(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t))
	if got := r.ask("id.tag.create", `{"tag":"masked","start":"9999999","format":"SO-{mask:k1:7}"}`); got.code != "" {
		t.Fatalf("%+v", got)
	}
	if got := r.ask("id.segment.masked", ""); got.body != "9999999" {
		t.Errorf("%+v, want the last number of the mask", got)
	}
	if got := r.ask("id.segment.masked", ""); got.code == "" {
		t.Errorf("an ID that the mask cannot write: %+v", got)
	}
	for _, update := range []struct{ format, want string }{
		{"SO-{mask:k2:7}", "is a text of both"},
		{"SO-{id:7}", "is a text of both"},
		{"SO-{mask:k1:6}", "at least 1048576"},
		{"RE-{mask:k2:10}", ""},
	} {
		got := r.ask("id.tag.update", `{"tag":"masked","format":"`+update.format+`"}`)
		if (got.code == "") != (update.want == "") || !strings.Contains(got.text, update.want) {
			t.Errorf("%s: %+v, want %q", update.format, got, update.want)
		}
	}
}
