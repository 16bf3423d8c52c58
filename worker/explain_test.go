package worker_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

func TestAReplyNamesWorkerAndLoadsWhereItsCallerAsks(t *testing.T) {
	url := startServer(t)
	// Loads are of 10 IDs, as the store's step; those above 40 are not remembered.
	origin := func(tag string, id int64) (segment.Loaded, bool) {
		first := (id-1)/10*10 + 1
		return segment.Loaded{
				Range: segment.Range{Start: first, End: first + 10}, Write: segment.Write{Read: uint64(first)},
			},
			tag == "order" && id <= 40
	}
	r := start(t, url, 1, newStore(t), func(_ *segment.Config, cfg *worker.Config) { cfg.Origin = origin })
	ask := func(body, explain string) *nats.Msg {
		t.Helper()
		m := nats.NewMsg(subjects.DefaultNamespace.Segment("order"))
		m.Data = []byte(body)
		if explain != "" {
			m.Header.Set(subjects.HeaderExplain, explain)
		}
		reply, err := r.caller.RequestMsg(m, 5*time.Second)
		if err != nil || reply.Header.Get(subjects.HeaderError) != "" {
			t.Fatalf("%v, %v", reply, err)
		}
		return reply
	}
	for _, tc := range []struct{ body, explain, want string }{
		{"1", "1", "[1-10] [1]"},           // cold: it waited for the load
		{"2", "1", "[1-10] [1]"},           // from memory
		{"2", "", "[] []"},                 // nobody asks
		{"2", "0", "[] []"},                // another value
		{"10", "1", "[1-10 11-20] [1 11]"}, // of two loads
		{"33", "1", "[11-20 21-30 31-40] [11 21 31]"},
		{"1", "1", "[] []"}, // not remembered
	} {
		reply := ask(tc.body, tc.explain)
		h := reply.Header
		if got := fmt.Sprint(h[subjects.HeaderLoad], h[subjects.HeaderRevision]); got != tc.want {
			t.Errorf("%s with %q: %q came from %s, want %s", tc.body, tc.explain, reply.Data, got, tc.want)
		}
		if name := h.Get(subjects.HeaderWorker); (name != "") != (tc.explain == "1") {
			t.Errorf("%s with %q: worker %q", tc.body, tc.explain, name)
		}
	}
}

func TestCallersThatNameThemselvesAreTold(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []string
	r := start(t, startServer(t), 1, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Called = func(caller, tag string, body []byte) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprintf("%s %s %s", caller, tag, body))
		}
	})
	want := []string{}
	for _, tc := range []struct{ subject, tag, caller string }{
		{"id.segment.order", "order", "billing"}, // cold: it waits for the load
		{"id.segment.order", "order", "billing"},
		{"id.snowflake", "", "a/b"},
		{"id.snowflake", "", ""},
		{"id.snowflake", "", "two words"},
	} {
		m := nats.NewMsg(tc.subject)
		if tc.caller != "" {
			m.Header.Set(subjects.HeaderCaller, tc.caller)
		}
		reply, err := r.caller.RequestMsg(m, time.Minute)
		if err != nil || reply.Header.Get(subjects.HeaderError) != "" {
			t.Fatalf("%v, %v", reply, err)
		}
		if tc.caller != "" && tc.caller != "two words" {
			want = append(want, fmt.Sprintf("%s %s %s", tc.caller, tc.tag, reply.Data))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
