package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

var errStore = errors.New("the store is lost")

// unable makes a worker one that cannot load.
func unable(_ *segment.Config, cfg *worker.Config) { cfg.CannotLoad = func() error { return errStore } }

// pair starts a worker on a store, and one that cannot load: its loads hang, and it turns away requests.
func pair(t *testing.T, strict bool, edits ...edit) (able, sick *rig) {
	t.Helper()
	url, store := natstest.Start(t), &segmenttest.Faulty{Store: new(segmenttest.Memory)}
	tag := segment.Tag{Name: "order", Step: 10, MaxID: 1, Rules: segment.Rules{Strict: strict}}
	if _, err := store.Create(t.Context(), tag, false); err != nil {
		t.Fatal(err)
	}
	able = start(t, url, 0, store, edits...)
	sick = start(t, url, 1, &segmenttest.Faulty{Store: store.Store}, unable)
	sick.store.OnLoad(slowly(hang))
	sick.turnAway(true)
	return able, sick
}

// served returns how many requests of callers a worker has answered with IDs so far.
func (r *rig) served() (n int) {
	for len(r.answers) > 0 {
		if a := <-r.answers; a.Code == 200 && a.Mode != worker.Relay {
			n++
		}
	}
	return n
}

func TestAWorkerThatCannotLoadAnswersWithWhatAnotherOneLoads(t *testing.T) {
	for _, strict := range []bool{false, true} {
		able, sick := pair(t, strict)
		seen, last := map[subjects.ID]bool{}, subjects.ID(0)
		for range 60 {
			id := able.one("id.segment.order")
			if seen[id] || strict && id <= last {
				t.Fatalf("strict %v: %d after %d", strict, id, last)
			}
			seen[id], last = true, id
		}
		able.ids(able.ask("id.segment.order", "1000"), 1000)
		for range 20 {
			if got := able.ask("id.tag.update", `{"tag":"order","step":20}`); got.code != "" {
				t.Errorf("a request about a tag: %+v", got)
			}
		}
		if a, s := able.served(), sick.served(); a == 0 || s == 0 {
			t.Errorf("strict %v: %d requests reached the worker that can load, and %d the other", strict, a, s)
		}
		if able.wantRefusal(able.ask("id.segment.none", ""), "404"); sick.parked() > 0 {
			t.Error("a request waits where nothing can be loaded")
		}
	}
}

func TestARequestThatWaitsIsRelayed(t *testing.T) {
	able, sick := pair(t, false)
	sick.admit()
	sick.eventually("park a request", func() bool {
		if err := sick.caller.PublishRequest("id.segment.order", "inbox", nil); err != nil {
			t.Fatal(err)
		}
		return sick.parked() > 0
	})
	able.served()
	sick.served()
	sick.turnAway(true)
	sick.eventually("answer it", func() bool { return sick.served() > 0 })
}

func TestWhereNobodyCanLoadARequestIsRefusedAtOnce(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t), unable)
	r.turnAway(true)
	for subject, body := range map[string]string{"id.segment.order": "", "id.tag.list": ""} {
		got := r.ask(subject, body)
		if r.wantRefusal(got, "503"); !strings.Contains(got.text, "no worker can load") {
			t.Errorf("%s: %s", subject, got.text)
		}
	}
	r.one("id.snowflake")
	if err := r.worker.FindRelay(t.Context()); !errors.Is(err, worker.ErrNobodyLoads) {
		t.Errorf("a search for another worker: %v", err)
	}
}

// A worker that reserves the last numbers of a loose tag issues them, whoever is asked; 410 means that all are used up.
func TestNumbersThatAnotherWorkerHoldsAreIssuedBeforeATagIsUsedUp(t *testing.T) {
	url, store := natstest.Start(t), newStore(t)
	r := start(t, url, 0, store)
	start(t, url, 1, store)
	tag := segment.Tag{Name: "few", Step: 1000, MaxID: 1, Rules: segment.Rules{Max: 30}}
	if _, err := store.Create(t.Context(), tag, false); err != nil {
		t.Fatal(err)
	}
	for range 8 { // of both workers; it says nothing of fewer
		r.wantRefusal(r.ask("id.segment.few", "31"), "410")
	}
	seen := map[subjects.ID]bool{}
	for range 30 {
		seen[r.one("id.segment.few")] = true
	}
	if len(seen) != 30 {
		t.Errorf("%d IDs, want all 30", len(seen))
	}
	r.wantRefusal(r.ask("id.segment.few", ""), "410")
	for len(r.answers) > 0 {
		if a := <-r.answers; a.Mode == worker.Relay && a.Code != 200 {
			t.Errorf("a relay is counted as answered with %v", a.Code)
		}
	}
}

func TestAWorkerOfAnotherRegistryTakesNoRelay(t *testing.T) {
	able, sick := pair(t, false, func(_ *segment.Config, cfg *worker.Config) {
		cfg.Registry = func() string { return "another" }
	})
	if err := sick.worker.FindRelay(t.Context()); !errors.Is(err, worker.ErrNobodyLoads) {
		t.Errorf("a search for another worker: %v", err)
	}
	for range 20 {
		able.ask("id.segment.order", "")
	}
	if n := sick.served(); n > 0 {
		t.Errorf("%d requests were answered with IDs of another registry", n)
	}
}

// A worker that takes relays may have lost its store in this moment.
func TestARelayIsNotRelayedAgain(t *testing.T) {
	able, sick := pair(t, false)
	able.turnAway(true)
	var relays atomic.Int64
	if _, err := able.caller.Subscribe("id.relay.segment.order", func(*nats.Msg) { relays.Add(1) }); err != nil {
		t.Fatal(err)
	}
	if err := able.caller.Flush(); err != nil {
		t.Fatal(err)
	}
	able.wantRefusal(sick.ask("id.segment.order", ""), "503")
	able.eventually("see all four relays", func() bool { return relays.Load() >= 4 })
	if err := able.caller.Flush(); err != nil || relays.Load() != 4 {
		t.Errorf("it was relayed %d times, %v, want 4", relays.Load(), err)
	}
}

// answerer answers relays in place of a worker.
func (r *rig) answerer(answer func(*nats.Msg)) {
	r.Helper()
	if _, err := r.caller.QueueSubscribe("id.relay.>", "natsid", answer); err != nil {
		r.Fatal(err)
	}
	if err := r.caller.Flush(); err != nil {
		r.Fatal(err)
	}
}

func TestARelayNamesTheRegistryAndTheTimeThatRemains(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t), unable)
	r.turnAway(true)
	headers := make(chan nats.Header, 1)
	r.answerer(func(m *nats.Msg) {
		headers <- m.Header
		_ = m.Respond([]byte("7-9\n"))
	})
	if got := r.ask("id.segment.order", "3"); got.body != "7-9\n" {
		t.Errorf("the answer is %+v", got)
	}
	h := <-headers
	left, err := time.ParseDuration(h.Get("Natsid-Within-Ms") + "ms")
	if h.Get("Natsid-Registry") != "r" || err != nil || left <= 0 || left > deadline {
		t.Errorf("the headers are %v", h)
	}
}

func TestARelayWithoutAnAnswerIsRefusedByTheDeadlineAndBounded(t *testing.T) {
	t.Parallel()
	const room, asked = 10, 30
	r := start(t, natstest.Start(t), 0, newStore(t), unable, func(s *segment.Config, cfg *worker.Config) {
		s.Deadline, cfg.Deadline = 5*time.Second, 5*time.Second // in which a busy machine sends all
	})
	r.turnAway(true)
	r.answerer(func(*nats.Msg) {})
	defer r.worker.TakeRelays(room)()
	codes := make(map[string]int)
	inbox := r.caller.NewInbox()
	answers, err := r.caller.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for range asked {
		if err := r.caller.PublishRequest("id.segment.order", inbox, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range asked {
		m, err := answers.NextMsg(slack)
		if err != nil {
			t.Fatalf("%v, %v have an answer", err, codes)
		}
		codes[read(m).code]++
	}
	if codes["503"] != room || codes["429"] != asked-room {
		t.Errorf("answers by code: %v", codes)
	}
}

// The worker that relays has counted the IDs already.
func TestALimitCountsARelayedRequestOnce(t *testing.T) {
	able, sick := pair(t, false)
	able.throttle.Store(1) // at which one request is for the IDs of a minute at most
	able.eventually("take what its own limit refuses", func() bool {
		able.ask("id.segment.order", "100")
		return sick.served() > 0
	})
}

// Memory serves, whatever the store does.
func TestAWorkerThatCannotLoadServesItsMemory(t *testing.T) {
	r := start(t, natstest.Start(t), 0, newStore(t), unable)
	r.one("id.segment.order")
	r.store.OnLoad(func(context.Context, string, func() (segment.Range, error)) (segment.Range, error) {
		return segment.Range{}, errStore
	})
	r.turnAway(true)
	for range 9 { // its first range
		r.one("id.segment.order")
	}
}
