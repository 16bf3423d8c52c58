package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

func TestABatchThatIsTooLargeIsRefusedWithOneThatIsNot(t *testing.T) {
	const yield = 20480 // of half the deadline
	r := start(t, natstest.Start(t), 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Deadline = 10 * time.Millisecond
	})
	for subject, most := range map[string]int{
		"id.segment.order": maxBatch, "id.snowflake": yield, "id.snowflake.3": yield,
	} {
		for _, body := range []string{fmt.Sprint(most + 1), "99999999999999999999\n"} {
			e := r.ask(subject, body)
			if e.code != "400" || e.maxBatch != most {
				t.Errorf("%s %q: %+v, want 400 and %d", subject, body, e, most)
			}
		}
		if e := r.ask(subject, "x"); e.code != "400" || e.maxBatch != 0 {
			t.Errorf("%s: %+v, but the size was not what is wrong", subject, e)
		}
	}
	r.ids(r.ask("id.snowflake", fmt.Sprint(yield)), yield)
}

func TestAnAgeOfPrefetchedIDsThatWorkersDoNotAllowCostsNoID(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t))
	first := r.one("id.segment.order")
	for _, subject := range []string{"id.segment.order", "id.snowflake", "id.snowflake.3"} {
		for _, age := range []string{"1h0m0.001s", "0s", "-1s", "soon", ""} {
			m := &nats.Msg{Subject: subject, Header: nats.Header{subjects.HeaderPrefetch: {age}}}
			if e := r.send(m); e.code != "400" {
				t.Errorf("%s, %q: %+v, want 400", subject, age, e)
			}
		}
	}
	m := &nats.Msg{Subject: "id.segment.order", Header: nats.Header{subjects.HeaderPrefetch: {"1h"}}}
	if run := r.ids(r.send(m), 1)[0]; run.First != first+1 {
		t.Errorf("the next ID is %d, want %d", run.First, first+1)
	}
}
