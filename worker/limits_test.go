package worker_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

func TestATagThatIsMadeStrictIsNotFetchedAheadAndStaysStrict(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	got := r.ask("id.tag.create", `{"tag":"invoice","strict":true,"step":10}`)
	if !strings.Contains(got.body, `"strict":true`) {
		t.Errorf("%+v of a strict tag", got)
	}
	ahead := &nats.Msg{Subject: "id.segment.invoice", Data: []byte("5"), Header: nats.Header{}}
	ahead.Header.Set(subjects.HeaderPrefetch, "2s")
	for range 2 { // the first load shows that it is strict
		r.wantRefusal(r.send(ahead), "400")
	}
	first := r.one("id.segment.invoice")
	if next := r.one("id.segment.invoice"); next != first+1 {
		t.Errorf("%d after %d", next, first)
	}
	r.wantRefusal(r.ask("id.tag.update", `{"tag":"invoice","strict":false}`), "400")
	r.ask("id.tag.update", `{"tag":"invoice","max_batch":7}`)
	r.ask("id.tag.delete", `{"tag":"invoice"}`)
	if got = r.ask("id.tag.create", `{"tag":"invoice"}`); !strings.Contains(got.body, `"strict":true`) {
		t.Errorf("%+v of a revived tag", got)
	}
	r.ask("id.tag.delete", `{"tag":"order"}`)
	got = r.ask("id.tag.create", `{"tag":"order","strict":true}`)
	if r.wantRefusal(got, "400"); !strings.Contains(got.text, "another name") {
		t.Errorf("%+v of a loose tag", got)
	}
}

// A worker learns the limits of a tag that it never loaded with its first load.
func TestTheFirstRequestForATagIsHeldToItsLargestBatch(t *testing.T) {
	store := newStore(t)
	tag := segment.Tag{Name: "limited", Step: 100, MaxID: 1, Rules: segment.Rules{MaxBatch: 5}}
	if _, err := store.Create(t.Context(), tag, false); err != nil {
		t.Fatal(err)
	}
	r := start(t, natstest.Start(t), 0, store)
	r.wantRefusal(r.ask("id.segment.limited", "6"), "400")
	if got := r.ask("id.segment.limited", "5"); got.code != "" {
		t.Errorf("%+v", got)
	}
}

func TestWhatALimitRefusesDrawsNoID(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	first := r.one("id.segment.order")
	var info subjects.TagInfo
	got := r.ask("id.tag.update", `{"tag":"order","max_batch":20,"rate":1}`)
	if err := json.Unmarshal([]byte(got.body), &info); err != nil || info.MaxBatch != 20 || info.Rate != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	got = r.ask("id.segment.order", "21")
	if r.wantRefusal(got, "400"); got.maxBatch != 20 {
		t.Errorf("%+v does not say how many are allowed", got)
	}
	drawn := subjects.ID(0)
	for refused := 0; refused < 5; {
		got := r.ask("id.segment.order", "20")
		if got.code == "" {
			drawn += 20
			continue
		}
		r.wantRefusal(got, "429")
		if refused++; got.retryAfter <= 0 || got.retryAfter > 20*time.Second {
			t.Errorf("retry after %v, want what the 20 IDs cost at most", got.retryAfter)
		}
	}
	r.ask("id.tag.update", `{"tag":"order","max_batch":0,"rate":0}`)
	if next := r.one("id.segment.order"); next != first+drawn+1 {
		t.Errorf("the next ID is %d after %d and %d IDs", next, first, drawn)
	}
}
