package fleetview_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

const ns = subjects.DefaultNamespace

// registry has heartbeats of the workers in it.
type registry struct {
	mu      sync.Mutex
	beats   map[int]workerid.Heartbeat
	records map[int]workerid.Record
	err     error
}

func (r *registry) Records(context.Context) (map[int]workerid.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.records), r.err
}

func (r *registry) Heartbeats(context.Context) (map[int]workerid.Heartbeat, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.beats), r.err
}

// A bed has workers that answer, and a clock that stands still unless it is set.
type bed struct {
	*registry
	url   string
	asked atomic.Int64
	hour  atomic.Int64 // ns since the start
	fleet *fleetview.Fleet
	began time.Time
}

func newBed(t *testing.T) *bed {
	t.Parallel()
	b := &bed{registry: &registry{beats: make(map[int]workerid.Heartbeat)}, url: natstest.Start(t), began: time.Now()}
	b.fleet = fleetview.New(b.config(t))
	return b
}

func (b *bed) config(t *testing.T) fleetview.Config {
	return fleetview.Config{
		Conn: natstest.Connect(t, b.url), Namespace: ns, Registry: b.registry, Patience: 3 * time.Second,
		Now: func() time.Time { return b.began.Add(time.Duration(b.hour.Load())) },
	}
}

func (b *bed) pass(d time.Duration) { b.hour.Add(int64(d)) }

// join starts a worker that answers until leave is called.
func (b *bed) join(t *testing.T, name string, number int) (requests *atomic.Int64, leave func()) {
	t.Helper()
	requests = new(atomic.Int64)
	nc := natstest.Connect(t, b.url)
	log := slog.New(slog.DiscardHandler)
	sub, err := fleetview.Answer(nc, ns, log, func(q wire.ViewRequest) wire.WorkerView {
		b.asked.Add(1)
		v := wire.WorkerView{Modes: map[string]wire.ModeView{"segment": {Requests: requests.Load()}}}
		v.Statistics.Instance, v.Statistics.Number = name, &number
		if q.Tag != "" {
			v.Tag = &wire.TagStats{Tag: q.Tag, Worker: name}
		}
		if q.Busiest {
			v.Statistics.Busiest = []wire.TagStats{{Tag: "order", IDsPerSecond: 5}, {Tag: name, IDsPerSecond: 7}}
		}
		return v
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.beats[number] = workerid.Heartbeat{Instance: name}
	b.mu.Unlock()
	return requests, func() { _ = sub.Unsubscribe(); _ = nc.Flush() }
}

func (b *bed) stop(number int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.beats, number)
}

// look looks until the snapshot is of now.
func (b *bed) look(t *testing.T, q wire.ViewRequest) fleetview.Snapshot {
	t.Helper()
	for {
		s, err := b.fleet.Look(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if s.At.Equal(b.began.Add(time.Duration(b.hour.Load()))) {
			return s
		}
		time.Sleep(time.Millisecond) // the next look asks, or has asked
	}
}

func names(s fleetview.Snapshot, answered bool) (all []string) {
	for _, w := range s.Workers {
		if w.Answered == answered {
			all = append(all, w.Name())
		}
	}
	return all
}

func TestManyWhoLookAskOnceAndNobodyWhoDoesNot(t *testing.T) {
	b := newBed(t)
	b.join(t, "a", 1)
	b.join(t, "b", 2)
	var looks sync.WaitGroup
	for range 50 {
		looks.Go(func() {
			if s, err := b.fleet.Look(t.Context(), wire.ViewRequest{}); err != nil || s.Answered() != 2 {
				t.Errorf("%v, %v", s, err)
			}
		})
	}
	looks.Wait()
	b.pass(time.Second)
	if _, err := b.fleet.Look(t.Context(), wire.ViewRequest{}); err != nil || b.asked.Load() != 2 {
		t.Errorf("%v, %d questions within 2 s, want one to each worker", err, b.asked.Load())
	}
	b.pass(time.Second)
	if b.look(t, wire.ViewRequest{}); b.asked.Load() != 4 {
		t.Errorf("%d questions after 2 s, want another one to each worker", b.asked.Load())
	}
	b.pass(time.Hour)
	time.Sleep(2500 * time.Millisecond) // in which whoever asks by itself would
	if b.asked.Load() != 4 {
		t.Errorf("%d questions although nobody looked", b.asked.Load()-4)
	}
}

func TestAWorkerThatDoesNotAnswerIsMissingUntilItHasStopped(t *testing.T) {
	b := newBed(t)
	b.join(t, "a", 1)
	_, leave := b.join(t, "b", 2)
	if s := b.look(t, wire.ViewRequest{}); s.Answered() != 2 {
		t.Fatalf("%v answered", names(s, true))
	}
	leave()
	for range 10 {
		b.pass(5 * time.Second)
		s := b.look(t, wire.ViewRequest{})
		if !slices.Equal(names(s, true), []string{"a"}) || !slices.Equal(names(s, false), []string{"b"}) {
			t.Fatalf("%v answered, %v did not", names(s, true), names(s, false))
		}
		if w := s.Workers[1]; w.Statistics.Number == nil || *w.Statistics.Number != 2 || w.Seen.IsZero() {
			t.Errorf("what was known of it is forgotten: %+v", w)
		}
	}
	b.stop(2) // its heartbeat
	b.pass(5 * time.Second)
	if s := b.look(t, wire.ViewRequest{}); len(s.Workers) != 1 {
		t.Errorf("after its heartbeat ended: %v", names(s, false))
	}
}

func TestAWorkerThatDidNotStopCleanlyIsGoneUntilItsNumberIsFree(t *testing.T) {
	b := newBed(t)
	b.join(t, "a", 1)
	b.join(t, "c", 3)
	_, leave := b.join(t, "b", 2)
	at := func(d time.Duration) int64 { return b.began.Add(d).UnixMilli() }
	b.records = map[int]workerid.Record{
		1: {Instance: "a", Reported: at(0), Until: at(5 * time.Minute)},
		2: {Instance: "b", Reported: at(0), Until: at(5 * time.Minute)},
		3: {Instance: "c", Reported: at(0), Until: at(5 * time.Minute)},
		4: {Instance: "never met", Reported: at(-time.Minute), Until: at(4 * time.Minute)},
		5: {Instance: "stopped", Reported: at(-time.Minute), Until: at(-time.Minute)},
		6: {Instance: "long ago", Reported: at(-2 * time.Hour), Until: at(24 * time.Hour)},
		7: {Instance: "c", Reported: at(-time.Minute), Until: at(4 * time.Minute)}, // it has another number now
	}
	leave()
	b.stop(2)
	b.pass(2 * time.Second)
	want := func(all ...string) {
		t.Helper()
		s := b.look(t, wire.ViewRequest{})
		if got := names(s, false); !slices.Equal(got, all) || s.Answered() != 2 {
			t.Errorf("%d answered, %q did not, want %q", s.Answered(), got, all)
		}
		for _, row := range s.Overview().Rows {
			if row.Answered == (row.State == "gone") || row.Answered != row.Gone.IsZero() ||
				row.Statistics.Number == nil {
				t.Errorf("%s: %+v", row.Name(), row)
			}
		}
	}
	want("b", "never met")
	b.pass(4*time.Minute - 2*time.Second)
	want("b")
	b.pass(time.Minute)
	want()
}

func TestAWorkerThatOnlyHasAHeartbeatIsMissing(t *testing.T) {
	b := newBed(t)
	b.join(t, "a", 1)
	b.beats[7] = workerid.Heartbeat{Instance: "old"}
	if s := b.look(t, wire.ViewRequest{}); !slices.Equal(names(s, false), []string{"old"}) {
		t.Errorf("%v did not answer", names(s, false))
	}
}

func TestWithoutTheRegistryWorkersAreMissedForAWhile(t *testing.T) {
	b := newBed(t)
	b.join(t, "a", 1)
	_, leave := b.join(t, "b", 2)
	b.look(t, wire.ViewRequest{})
	b.err = context.DeadlineExceeded
	leave()
	b.stop(2)
	b.pass(20 * time.Second)
	if s := b.look(t, wire.ViewRequest{}); s.Numbers.Trouble == nil || len(names(s, false)) != 1 {
		t.Errorf("after 20 s: %v, %v", s.Numbers.Trouble, names(s, false))
	}
	b.pass(20 * time.Second)
	if s := b.look(t, wire.ViewRequest{}); len(names(s, false)) != 0 || s.Answered() != 1 {
		t.Errorf("after 40 s: %v", names(s, false))
	}
}

func TestAWorkerThatIsCutOffShowsItselfAndForgetsNobody(t *testing.T) {
	b := newBed(t)
	cfg := b.config(t)
	cfg.Self = func(wire.ViewRequest) (v wire.WorkerView) {
		v.Statistics.Instance = "self"
		return v
	}
	b.fleet = fleetview.New(cfg)
	_, leave := b.join(t, "b", 2)
	if s := b.look(t, wire.ViewRequest{}); s.Answered() != 2 || s.Alone {
		t.Fatalf("%v answered, alone %v", names(s, true), s.Alone)
	}
	leave()
	b.stop(2)
	b.err = nats.ErrDisconnected
	for range 3 {
		b.pass(10 * time.Minute)
		s := b.look(t, wire.ViewRequest{})
		if !slices.Equal(names(s, true), []string{"self"}) || !slices.Equal(names(s, false), []string{"b"}) ||
			!s.Alone {
			t.Errorf("cut off: %v answered, %v did not, alone %v", names(s, true), names(s, false), s.Alone)
		}
		if all := fmt.Sprint(s.Overview().Faults()); !strings.Contains(all, "no answer from b, nor from any other") {
			t.Errorf("of a worker that it cannot ask it says: %s", all)
		}
	}
	b.err = nil
	b.pass(10 * time.Minute)
	if s := b.look(t, wire.ViewRequest{}); len(s.Workers) != 1 || s.Alone {
		t.Errorf("no longer cut off: %v did not answer, alone %v", names(s, false), s.Alone)
	}
}

func TestRatesAreOfTheLastSeconds(t *testing.T) {
	b := newBed(t)
	requests, _ := b.join(t, "a", 1)
	requests.Store(1000)
	if s := b.look(t, wire.ViewRequest{}); s.Workers[0].Rates != nil {
		t.Errorf("at the first look: %v", s.Workers[0].Rates)
	}
	b.pass(2 * time.Second)
	requests.Add(50)
	if s := b.look(t, wire.ViewRequest{}); s.Workers[0].Rates["segment"].Requests != 25 {
		t.Errorf("after 50 requests in 2 s: %v", s.Workers[0].Rates)
	}
	if s := b.look(t, wire.ViewRequest{Busiest: true}); s.Workers[0].Rates["segment"].Requests != 25 {
		t.Errorf("to another question at the same time: %v", s.Workers[0].Rates)
	}
}

func TestAnAnswerHasWhatWasAskedForAndNoMore(t *testing.T) {
	b := newBed(t)
	b.join(t, "a", 1)
	b.join(t, "b", 2)
	s := b.look(t, wire.ViewRequest{Busiest: true})
	want := []fleetview.Use{
		{Tag: "order", Workers: 2, IDsPerSecond: 10}, {Tag: "a", Workers: 1, IDsPerSecond: 7},
		{Tag: "b", Workers: 1, IDsPerSecond: 7},
	}
	if got := s.Busiest(); !slices.Equal(got, want) {
		t.Errorf("the busiest are %+v", got)
	}
	s = b.look(t, wire.ViewRequest{Tag: "order"})
	for _, w := range s.Workers {
		if w.Tag == nil || w.Tag.Tag != "order" || w.Statistics.Busiest != nil {
			t.Errorf("asked for a tag: %+v", w)
		}
	}
	for _, w := range b.look(t, wire.ViewRequest{}).Workers {
		if w.Tag != nil || w.Statistics.Busiest != nil {
			t.Errorf("asked for nothing: %+v", w)
		}
	}
}

func TestNoAnswerGoesWhereOnlyWorkersMayWrite(t *testing.T) {
	b := newBed(t)
	b.join(t, "a", 1)
	nc := natstest.Connect(t, b.url)
	for _, reply := range []string{"id.tag.changed", "$KV.id_segments.order", "other.$KV.id_segments.order"} {
		heard, err := nc.SubscribeSync(reply)
		if err == nil {
			err = nc.PublishRequest(wire.View(ns), reply, []byte("{}"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Request(wire.View(ns), []byte("{}"), 10*time.Second); err != nil { // the last answer
			t.Fatal(err)
		}
		if n, _, _ := heard.Pending(); n != 0 {
			t.Errorf("an answer went to %s", reply)
		}
	}
}
