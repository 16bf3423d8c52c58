package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// refusal returns the error that answers a message.
func (r *rig) refusal(m *nats.Msg) *subjects.Error {
	r.Helper()
	got, err := r.caller.RequestMsg(m, 30*time.Second)
	if err != nil {
		r.Fatal(err)
	}
	e := subjects.ParseError(got.Header)
	if e == nil {
		r.Fatalf("%s was answered %q, want an error", m.Subject, got.Data)
	}
	return e
}

func TestABatchThatIsTooLargeIsRefusedWithOneThatIsNot(t *testing.T) {
	const yield = 20480 // of half the deadline
	r := start(t, startServer(t), 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Deadline = 10 * time.Millisecond
	})
	for subject, most := range map[string]int{
		"id.segment.order": maxBatch, "id.snowflake": yield, "id.snowflake.3": yield,
	} {
		for _, body := range []string{fmt.Sprint(most + 1), "99999999999999999999\n"} {
			e := r.refusal(&nats.Msg{Subject: subject, Data: []byte(body)})
			if e.Code != subjects.BadRequest || e.MaxBatch != most {
				t.Errorf("%s %q: %+v, want 400 and %d", subject, body, e, most)
			}
		}
		if e := r.refusal(&nats.Msg{Subject: subject, Data: []byte("x")}); e.MaxBatch != 0 {
			t.Errorf("%s: %+v, but the size was not what is wrong", subject, e)
		}
	}
	r.ids(r.ask("id.snowflake", fmt.Sprint(yield)), yield)
}

func TestAnAgeOfPrefetchedIDsThatWorkersDoNotAllowCostsNoID(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t))
	first := r.one("id.segment.order")
	for _, subject := range []string{"id.segment.order", "id.snowflake", "id.snowflake.3"} {
		for _, age := range []string{"1h0m0.001s", "0s", "-1s", "soon", ""} {
			m := &nats.Msg{Subject: subject, Header: nats.Header{subjects.HeaderPrefetch: {age}}}
			if e := r.refusal(m); e.Code != subjects.BadRequest {
				t.Errorf("%s, %q: %v, want 400", subject, age, e)
			}
		}
	}
	m := &nats.Msg{Subject: "id.segment.order", Header: nats.Header{subjects.HeaderPrefetch: {"1h"}}}
	got, err := r.caller.RequestMsg(m, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if run := r.ids(read(got), 1)[0]; run.First != first+1 {
		t.Errorf("the next ID is %d, want %d", run.First, first+1)
	}
}
