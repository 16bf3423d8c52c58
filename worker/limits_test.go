package worker_test

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/fleet/policy"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// settings are those of one worker, in memory.
type settings struct {
	gate policy.Gate
	mu   sync.Mutex
	now  policy.Rules
	// strict is the allocator's.
	strict func(map[string]bool)
	from   time.Time
}

func (s *settings) SetLimit(_ context.Context, tag string, change func(*policy.Limit)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rules := maps.Clone(s.now)
	if rules == nil {
		rules = make(policy.Rules)
	}
	l := rules[tag]
	change(&l)
	rules[tag] = l
	s.now = rules
	s.gate.Set(s.now)
	return nil
}

func (s *settings) SetOrder(_ context.Context, tag string, strict bool, from time.Time) error {
	if tag == "unconfirmed" {
		return subjects.Errorf(subjects.Unavailable, "no confirmation from \"b\"")
	}
	s.mu.Lock()
	s.from = from
	s.mu.Unlock()
	s.strict(map[string]bool{tag: strict})
	return nil
}

func (s *settings) StrictFrom(string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from
}

func startLimited(t *testing.T) *rig {
	s := new(settings)
	r := start(t, startServer(t), 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		cfg.Gate, cfg.Settings = &s.gate, s
	})
	s.strict = r.strict
	return r
}

func TestATagIsMadeStrictAndThenNotFetchedAhead(t *testing.T) {
	r := startLimited(t)
	first := r.one("id.segment.order")
	var info subjects.TagInfo
	got := r.ask("id.tag.update", `{"tag":"order","order":"strict"}`)
	if err := json.Unmarshal([]byte(got.body), &info); err != nil || info.Order != subjects.OrderStrict ||
		info.StrictFrom == nil || time.Until(*info.StrictFrom) < subjects.StrictAfter-time.Minute {
		t.Fatalf("%+v, %v", got, err)
	}
	var listed []subjects.TagInfo
	got = r.ask("id.tag.list", "")
	if err := json.Unmarshal([]byte(got.body), &listed); err != nil || len(listed) != 1 ||
		listed[0].StrictFrom == nil || !listed[0].StrictFrom.Equal(*info.StrictFrom) {
		t.Errorf("%+v, %v: want it as strict from %v on", got, err, info.StrictFrom)
	}
	if next := r.one("id.segment.order"); next < first+10 {
		t.Errorf("%d after %d: from memory", next, first)
	}
	ahead := &nats.Msg{Subject: "id.segment.order", Data: []byte("5"), Header: nats.Header{}}
	ahead.Header.Set(subjects.HeaderPrefetch, "2s")
	m, err := r.caller.RequestMsg(ahead, slack)
	if err != nil {
		t.Fatal(err)
	}
	r.wantRefusal(read(m), "400")
	r.wantRefusal(r.ask("id.tag.create", `{"tag":"order","order":"loose"}`), "409")
	if r.one("id.segment.order") == 0 || !strings.Contains(r.ask("id.tag.list", "").body, `"order":"strict"`) {
		t.Error("a refused creation changed the order")
	}
	got = r.ask("id.tag.update", `{"tag":"order","order":"loose"}`)
	if strings.Contains(got.body, "strict") {
		t.Errorf("%+v of a loose tag", got)
	}
	got = r.ask("id.tag.create", `{"tag":"invoice","order":"strict"}`)
	if !strings.Contains(got.body, `"order":"strict"`) || strings.Contains(got.body, "strict_from") {
		t.Errorf("%+v of a new strict tag", got)
	}
	r.ask("id.tag.delete", `{"tag":"order"}`)
	got = r.ask("id.tag.create", `{"tag":"order","order":"strict"}`)
	if !strings.Contains(got.body, `"strict_from"`) {
		t.Errorf("%+v of a revived tag, of which clients may hold IDs", got)
	}
	r.wantRefusal(r.ask("id.tag.update", `{"tag":"unknown","order":"strict"}`), "404")
	r.wantRefusal(r.ask("id.tag.update", `{"tag":"order","order":"strict","step":5}`), "400")
	r.wantRefusal(r.ask("id.tag.update", `{"tag":"order","order":"random"}`), "400")
	r.wantRefusal(r.ask("id.tag.create", `{"tag":"unconfirmed","order":"strict"}`), "503")
	r.wantRefusal(r.ask("id.segment.unconfirmed", ""), "404")
}

// The IDs of such a request would be used after later ones.
func TestARequestForIDsAheadThatWaitsInDoubtGetsNoStrictOnes(t *testing.T) {
	for code, strict := range map[string]bool{"400": true, "": false} {
		r := startLimited(t)
		r.doubt()
		ahead := nats.NewMsg("id.segment.order")
		ahead.Header.Set(subjects.HeaderPrefetch, "2s")
		answer := make(chan reply, 1)
		go func() {
			m, err := r.caller.RequestMsg(ahead, slack)
			if err != nil {
				t.Error(err)
				m = nats.NewMsg("")
			}
			answer <- read(m)
		}()
		r.eventually("park the request", func() bool { return r.parked() == 1 })
		r.strict(map[string]bool{"order": strict})
		if got := <-answer; got.code != code {
			t.Errorf("strict %v: %+v", strict, got)
		}
		if r.one("id.segment.order") < 1 {
			t.Error("nothing is served then")
		}
	}
}

// A lateLook is a store where another operator acts right after a look.
type lateLook struct {
	segment.Store
	then func()
}

func (l *lateLook) Look(ctx context.Context, tag string) (segment.Tag, error) {
	t, err := l.Store.Look(ctx, tag)
	if l.then != nil {
		l.then()
	}
	return t, err
}

func TestARefusedCreationOfALooseTagChangesNoOrder(t *testing.T) {
	s, store := new(settings), new(lateLook)
	r := start(t, startServer(t), 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) {
		store.Store = cfg.Store
		cfg.Store, cfg.Gate, cfg.Settings = store, &s.gate, s
	})
	s.strict = r.strict
	store.then = func() {
		if err := s.SetOrder(t.Context(), "invoice", true, time.Time{}); err != nil {
			t.Error(err)
		}
		if _, err := store.Create(t.Context(), segment.Tag{Name: "invoice", Step: 10, MaxID: 1}, false); err != nil {
			t.Error(err)
		}
	}
	r.wantRefusal(r.ask("id.tag.create", `{"tag":"invoice","order":"loose"}`), "409")
	if list := r.ask("id.tag.list", "").body; !strings.Contains(list, `"order":"strict"`) {
		t.Errorf("the tag that another operator made strict: %s", list)
	}
	store.then = nil
	s.strict(map[string]bool{"plain": true})
	if got := r.ask("id.tag.create", `{"tag":"plain","order":"loose"}`); strings.Contains(got.body, "strict") {
		t.Errorf("%+v of a loose tag", got)
	}
}

func TestWhatALimitRefusesDrawsNoID(t *testing.T) {
	r := startLimited(t)
	first := r.one("id.segment.order")
	var info subjects.TagInfo
	got := r.ask("id.tag.update", `{"tag":"order","max_batch":20,"rate":1}`)
	if err := json.Unmarshal([]byte(got.body), &info); err != nil || info.MaxBatch != 20 || info.Rate != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	m, err := r.caller.Request("id.segment.order", []byte("21"), slack)
	if err != nil {
		t.Fatal(err)
	}
	r.wantRefusal(read(m), "400")
	if e := subjects.ParseError(m.Header); e.MaxBatch != 20 {
		t.Errorf("%+v does not say how many are allowed", e)
	}
	drawn := int64(0)
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

func TestAThrottleHoldsEachTagUntilItEnds(t *testing.T) {
	r := startLimited(t)
	r.ask("id.tag.create", `{"tag":"other"}`)
	refuse := func(body string, want bool) {
		t.Helper()
		if got := r.ask("id.control.throttle", body); got.body != body {
			t.Errorf("%s: %+v", body, got)
		}
		for _, subject := range []string{"id.segment.order", "id.segment.other"} {
			codes := map[string]bool{}
			for range 3 {
				codes[r.ask(subject, "50").code] = true
			}
			if codes["429"] != want {
				t.Errorf("%s: %v after %s", subject, codes, body)
			}
		}
	}
	refuse(`{"rate":1}`, true)
	if list := r.ask("id.tag.list", ""); strings.Count(list.body, `"throttle":1`) != 2 {
		t.Errorf("the list does not show it: %s", list.body)
	}
	refuse(`{"rate":0}`, false)
	for _, body := range []string{``, `{}`, `{"rate":-1}`, `{"rate":1000000000001}`, `[]`, `{"tag":"order","rate":5}`} {
		r.wantRefusal(r.ask("id.control.throttle", body), "400")
	}
}

func TestLimitsOfATagThatIsNotThereAreRefused(t *testing.T) {
	r := startLimited(t)
	r.wantRefusal(r.ask("id.tag.update", `{"tag":"none","rate":1}`), "404")
	r.ask("id.tag.delete", `{"tag":"order"}`)
	r.wantRefusal(r.ask("id.tag.update", `{"tag":"order","rate":1}`), "404")
	r.wantRefusal(r.ask("id.tag.update", `{"tag":"order","rate":1,"step":5}`), "400")
	r.wantRefusal(r.ask("id.tag.update", `{"tag":"order","max_batch":1000001}`), "400")
}
