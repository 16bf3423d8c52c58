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
)

// Services of package micro itself stand beside the worker's, with the same
// endpoints, and each answers the same requests.
func TestNATSMicroShowsAWorkerAsItShowsServicesOfItsOwn(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t))
	r.ask("id.segment.order", "x") // an error
	r.eventually("count it", func() bool {
		var s micro.Stats
		err := json.Unmarshal([]byte(r.ask("$SRV.STATS.id-segment", "").body), &s)
		return err == nil && s.Endpoints[0].NumErrors == 1
	})
	names := []string{"id-segment", "id-snowflake"}
	ids := map[string]string{}
	for _, name := range names {
		own := r.scatter("$SRV.INFO."+name, 1)[0]
		ids[name] = own["id"].(string)
		beside(r, own)
	}
	alike := func(subject, name string, answers []map[string]any) {
		t.Helper()
		var shapes []any
		for _, answer := range answers {
			if answer["name"] == name {
				shapes = append(shapes, shape(answer))
			}
		}
		if len(shapes) != 2 || !reflect.DeepEqual(shapes[0], shapes[1]) {
			t.Errorf("%s %s: %v, want two alike", subject, name, shapes)
		}
	}
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		all := r.scatter("$SRV."+verb, 4)
		for _, name := range names {
			alike(verb, name, all)
			alike(verb, name, r.scatter("$SRV."+verb+"."+name, 2))
			if got := r.scatter("$SRV."+verb+"."+name+"."+ids[name], 1)[0]; got["id"] != ids[name] {
				t.Errorf("%s of %s: %v", verb, ids[name], got)
			}
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
		StatsHandler: map[string]micro.StatsHandler{
			"id-segment": func(*micro.Endpoint) any { return map[string]any{} },
		}[info["name"].(string)],
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
			case "data":
				s[key] = "any"
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
