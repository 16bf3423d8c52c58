package worker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// statistics returns what $SRV.STATS shows of the worker's tags.
func (r *rig) statistics() (w wire.WorkerStats, size int) {
	r.Helper()
	got := r.ask(wire.ServiceStats(subjects.DefaultNamespace), "")
	var answer micro.Stats
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil {
		r.Fatal(err)
	}
	for _, e := range answer.Endpoints {
		if e.Name == wire.SegmentEndpoint {
			if err := json.Unmarshal(e.Data, &w); err != nil {
				r.Fatal(err)
			}
		}
	}
	return w, len(got.body)
}

func TestAWorkerShowsItsTagsAndTheBusiest(t *testing.T) {
	r := start(t, natstest.Start(t), 1, newStore(t))
	r.ask("id.segment.order", "15")
	w, _ := r.statistics() // at once
	if w.Tags != 1 || len(w.Busiest) != 1 {
		t.Fatalf("just after the first use: %+v", w)
	}
	recent := time.Since(w.At).Abs() < time.Minute
	if w.Instance != "w1" || w.Number == nil || *w.Number != 1 || !recent || w.Waits != 1 || w.Errors != 0 {
		t.Errorf("%+v", w)
	}
	// The rest of the range is there a moment after the answer.
	r.eventually("show the range", func() bool { w, _ = r.statistics(); return len(w.Busiest[0].Ranges) > 0 })
	got := w.Busiest[0]
	if got.Tag != "order" || got.Worker != "w1" || got.Step != 10 || got.Waits != 1 || got.Loads < 1 || got.Failing {
		t.Errorf("%+v", got)
	}
	if len(got.Ranges) == 0 || got.Ranges[0].Next != 16 {
		t.Errorf("%+v", got)
	}
	body := r.ask(wire.ServiceStats(subjects.DefaultNamespace), "").body
	if !strings.Contains(body, `"next":"16"`) || !strings.Contains(body, `"waits":1`) {
		t.Errorf("IDs are strings, counts are numbers: %s", body)
	}
}

// longest is the description that takes most bytes: six each in JSON.
var longest = strings.Repeat("\x01", wire.MaxDescription)

// crowd returns a store with many tags, whose names are as long as possible.
func crowd(t *testing.T, n int) (*segmenttest.Faulty, []string) {
	store := newStore(t)
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%06d%s", i, strings.Repeat("x", subjects.MaxTag-6))
		tag := segment.Tag{Name: names[i], Step: 10, MaxID: 1 << 60, Description: longest}
		if _, err := store.Create(t.Context(), tag, false); err != nil {
			t.Fatal(err)
		}
	}
	return store, names
}

func TestStatisticsStaySmallHoweverManyTagsThereAre(t *testing.T) {
	const tags = 3000
	store, names := crowd(t, tags)
	r := start(t, natstest.Start(t), 1, store)
	for _, name := range names {
		r.ask("id.segment."+name, "")
	}
	var w wire.WorkerStats
	var size int
	r.eventually("show all tags", func() bool { w, size = r.statistics(); return w.Tags == tags })
	t.Logf("%d bytes", size)
	if len(w.Busiest) != wire.MaxBusiest || size > 64<<10 {
		t.Errorf("%d of %d tags in %d bytes, want %d in 64 KiB at most",
			len(w.Busiest), w.Tags, size, wire.MaxBusiest)
	}
}

func TestTakingStatisticsDelaysNoRequest(t *testing.T) {
	taking, release := make(chan struct{}, 100), make(chan struct{})
	r := start(t, natstest.Start(t), 1, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Instance = func() string { // stands for statistics that take long
			taking <- struct{}{}
			<-release
			return "w1"
		}
	})
	defer close(release)
	if err := r.caller.PublishRequest(wire.ServiceStats(subjects.DefaultNamespace), "nobody", nil); err != nil {
		t.Fatal(err)
	}
	<-taking
	for range 3 {
		if got := r.ask("id.segment.order", ""); got.took > slack {
			t.Errorf("a request took %v", got.took)
		}
	}
}
