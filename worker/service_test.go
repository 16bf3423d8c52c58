package worker_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/internal/testkit/natstest"
)

// A service of package micro itself stands beside the worker's, with the same
// endpoints, and answers the same requests.
func TestNATSMicroShowsAWorkerAsItShowsServicesOfItsOwn(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	for _, body := range []string{"", "", "0", "x"} {
		r.ask("id.segment.order", body)
	}
	// A request is counted a moment after its answer.
	r.eventually("count them", func() bool {
		var s micro.Stats
		err := json.Unmarshal([]byte(r.ask("$SRV.STATS.id", "").body), &s)
		return err == nil && s.Endpoints[0].Subject == "id.segment.>" && s.Endpoints[0].NumRequests == 4 &&
			s.Endpoints[0].NumErrors == 2
	})
	own := r.scatter("$SRV.INFO.id", 1)[0]
	var served []string
	for _, e := range own["endpoints"].([]any) {
		served = append(served, e.(map[string]any)["subject"].(string))
	}
	slices.Sort(served)
	want := []string{
		"id.control.throttle", "id.segment.>", "id.snowflake", "id.snowflake.>",
		"id.tag.create", "id.tag.delete", "id.tag.list", "id.tag.update",
	}
	if !slices.Equal(served, want) || own["version"] != "1.2.3" || own["description"] == "" {
		t.Errorf("%v serves %v, want %v", own, served, want)
	}
	beside(r, own)
	for _, verb := range []string{"$SRV.PING", "$SRV.INFO", "$SRV.STATS"} {
		for _, subject := range []string{verb, verb + ".id"} {
			two := r.scatter(subject, 2)
			if one, other := shape(two[0]), shape(two[1]); !reflect.DeepEqual(one, other) {
				t.Errorf("%s: %v and %v, want two alike", subject, one, other)
			}
		}
		if got := r.scatter(verb+".id."+own["id"].(string), 1)[0]; got["id"] != own["id"] {
			t.Errorf("%s of %s: %v", verb, own["id"], got)
		}
	}
}

// beside runs a service of package micro with the endpoints of another.
func beside(r *rig, info map[string]any) {
	r.Helper()
	conn := connect(r.T, r.caller.ConnectedUrl())
	s, err := micro.AddService(conn, micro.Config{
		Name: info["name"].(string), Version: info["version"].(string), Description: info["description"].(string),
		QueueGroup: "natsid",
	})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = s.Stop() })
	for _, e := range info["endpoints"].([]any) {
		e := e.(map[string]any)
		err := s.AddEndpoint(e["name"].(string), micro.HandlerFunc(func(micro.Request) {}),
			micro.WithEndpointSubject(e["subject"].(string)))
		if err != nil {
			r.Fatal(err)
		}
	}
	if err := conn.Flush(); err != nil {
		r.Fatal(err)
	}
}

// scatter returns what so many services answer.
func (r *rig) scatter(subject string, n int) (all []map[string]any) {
	r.Helper()
	inbox := r.caller.NewInbox()
	sub, err := r.caller.SubscribeSync(inbox)
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := r.caller.PublishMsg(&nats.Msg{Subject: subject, Reply: inbox}); err != nil {
		r.Fatal(err)
	}
	for range n {
		m, err := sub.NextMsg(30 * time.Second)
		if err != nil {
			r.Fatalf("%s: %v", subject, err)
		}
		var one map[string]any
		if err := json.Unmarshal(m.Data, &one); err != nil {
			r.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// shape returns an answer without what differs between two services alike: IDs,
// times and counts keep their types only.
func shape(v any) any {
	switch v := v.(type) {
	case map[string]any:
		s := maps.Clone(v)
		for key, value := range s {
			switch key {
			case "id", "started", "num_requests", "num_errors", "last_error",
				"processing_time", "average_processing_time":
				s[key] = reflect.TypeOf(value).String()
			case "data": // of natsid alone
				delete(s, key)
			default:
				s[key] = shape(value)
			}
		}
		return s
	case []any:
		s := slices.Clone(v)
		for i := range s {
			s[i] = shape(s[i])
		}
		return s
	}
	return v
}
