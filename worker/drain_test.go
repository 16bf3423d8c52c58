package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// obeys makes a worker follow the orders of operators.
func obeys(_ *segment.Config, cfg *worker.Config) {
	reasons := &worker.Reasons{}
	cfg.Reasons = reasons
	cfg.Drain = func(drain bool) (changed bool) {
		changed = reasons.Has(worker.Drained) != drain
		if modes := []worker.Mode{worker.Segment, worker.Tags, worker.Snowflake}; drain {
			reasons.Set(worker.Drained, errors.New("drained"), modes...)
		} else {
			reasons.Clear(worker.Drained, modes...)
		}
		return changed
	}
}

// holdLoads makes loads wait until they are released.
func holdLoads(r *rig) (release func()) {
	released := make(chan struct{})
	r.store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
		<-released
		return load()
	})
	release = sync.OnceFunc(func() { close(released) })
	r.Cleanup(release) // before the worker stops
	return release
}

// orders returns the subject on which the worker takes orders.
func (r *rig) orders() string {
	r.Helper()
	var p micro.Ping
	if err := json.Unmarshal([]byte(r.ask("$SRV.PING.id-segment", "").body), &p); err != nil {
		r.Fatal(err)
	}
	return "id.control.drain." + p.ID
}

func (r *rig) order(subject, body string) (state subjects.WorkerDrained) {
	r.Helper()
	got := r.ask(subject, body)
	if err := json.Unmarshal([]byte(got.body), &state); err != nil {
		r.Fatalf("%+v: %v", got, err)
	}
	return state
}

func TestADrainedWorkerAnswersWhatItHasTakenAndThenLeavesAndComesBack(t *testing.T) {
	url, store := startServer(t), newStore(t)
	// The request waits for as long as a busy machine takes.
	patient := func(s *segment.Config, _ *worker.Config) { s.Deadline, s.LoadTimeout = time.Minute, time.Minute }
	r := start(t, url, 1, store, obeys, patient)
	release, orders := holdLoads(r), r.orders()
	answers, err := r.caller.SubscribeSync(r.caller.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.caller.PublishRequest("id.segment.order", answers.Subject, nil); err != nil {
		t.Fatal(err)
	}
	r.eventually("take the request", func() bool { return r.parked() == 1 })
	r.eventually("leave, but for the request", func() bool {
		s := r.order(orders, "")
		if !s.Drained || s.Instance != "w1" || s.Number == nil || *s.Number != 1 {
			t.Fatalf("answered %+v", s)
		}
		return len(s.Serves) == 0 && s.Open == 1
	})
	for _, subject := range []string{"id.segment.order", "id.snowflake", "id.snowflake.3", "id.tag.list"} {
		if got, err := r.try(subject, ""); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: %+v, %v, want no responders", subject, got, err)
		}
	}
	if got := r.ask("id.worker.1", ""); got.body != `{"number":1}` {
		t.Errorf("asked who holds the number: %+v", got)
	}
	for _, mode := range []worker.Mode{worker.Segment, worker.Snowflake, worker.Tags} {
		if r.worker.Trouble(mode) == nil {
			t.Errorf("the mode %s is ready", mode)
		}
	}
	release()
	m, err := answers.NextMsg(slack)
	if err != nil {
		t.Fatal("a request that was taken has no answer:", err)
	}
	r.ids(read(m), 1)
	r.eventually("be idle", func() bool { return r.order(orders, "{}").Open == 0 })

	r.eventually("come back", func() bool {
		s := r.order(orders, `{"undo":true}`)
		return !s.Drained && len(s.Serves) == 3 && r.worker.Trouble(worker.Snowflake) == nil
	})
	r.one("id.segment.order")
	r.one("id.snowflake")
}

func TestWhoDrainedAWorkerIsLoggedOnce(t *testing.T) {
	var log natstest.Buffer
	r := start(t, startServer(t), 0, newStore(t), obeys, func(_ *segment.Config, cfg *worker.Config) {
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	orders := r.orders()
	for _, body := range []string{"", "{}", `{"undo":true}`, `{"undo":true}`} {
		m := nats.NewMsg(orders)
		m.Data = []byte(body)
		m.Header.Set("Nats-Request-Info", `{"user":"root"}`)
		if _, err := r.caller.RequestMsg(m, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{"has drained this worker", "lets this worker serve again"} {
		if n := len(regexp.MustCompile(what+`.*claimed.user=root`).FindAllString(log.String(), -1)); n != 1 {
			t.Errorf("%d lines say that an operator %s, and who it was:\n%s", n, what, &log)
		}
	}
}

func TestWhatIsNoOrderChangesNothing(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t), obeys)
	orders := r.orders()
	for _, body := range []string{"x", "null x", `{"undo":1}`, `{"drain":true}`, `{} {}`, "\x00"} {
		r.wantRefusal(r.ask(orders, body), "400")
	}
	if _, err := r.try("id.control.drain.other", ""); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("an order to another worker: %v, want no responders", err)
	}
	for _, reply := range []string{"$KV.id_segments.order", "id.settings.workers"} { // which only workers may write
		written, err := r.caller.SubscribeSync(reply)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.caller.PublishRequest(orders, reply, nil); err != nil {
			t.Fatal(err)
		}
		r.order(orders, `{"undo":true}`) // answered after it
		if n, _, err := written.Pending(); n != 0 || err != nil {
			t.Errorf("an order wrote to %s, %v", reply, err)
		}
	}
	r.one("id.segment.order")
	r.one("id.snowflake")
	if err := r.caller.Publish(orders, nil); err != nil { // an order whose answer nobody wants
		t.Fatal(err)
	}
	r.eventually("follow it", func() bool { return r.worker.Trouble(worker.Segment) != nil })
}
