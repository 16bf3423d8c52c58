package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/fleet/policy"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// askDirect asks for IDs of a tag, "" for snowflakes, beside NATS.
func (r *rig) askDirect(tag, count string) reply {
	r.Helper()
	body, err := []byte(nil), error(nil)
	if tag == "" {
		body, err = r.direct.Snowflake(nil, []byte(count))
	} else {
		body, err = r.direct.Segment(nil, tag, []byte(count))
	}
	if err == nil {
		return reply{body: string(body)}
	}
	refusal, ok := errors.AsType[*worker.Refusal](err)
	if !ok {
		r.Errorf("%T %v", err, err)
		return reply{}
	}
	e := refusal.Said
	return reply{code: e.Code.String(), text: e.Text, retryAfter: e.RetryAfter, body: string(body)}
}

func TestADirectRequestIsAnsweredAsOneOverNATS(t *testing.T) {
	var gate policy.Gate
	gate.Set(policy.Rules{"order": {MaxBatch: 5000}})
	f := new(refuser)
	r := start(t, startServer(t), 0, newStore(t), f.edit,
		func(_ *segment.Config, cfg *worker.Config) {
			cfg.Gate = &gate
		})
	for _, c := range []struct {
		tag, count, code string
		ids              int64
	}{
		{"order", "", "", 1}, {"", "", "", 1}, {"order", "3000", "", 3000}, {"", "3000", "", 3000},
		{"none", "", "404", 0}, {"a..b", "", "400", 0}, {"order", "x", "400", 0}, {"", "0", "400", 0},
		{"order", "5001", "400", 0}, {"", "50001", "400", 0},
	} {
		subject := "id.snowflake"
		if c.tag != "" {
			subject = "id.segment." + c.tag
		}
		direct := r.askDirect(c.tag, c.count)
		if c.code == "" {
			r.ids(direct, c.ids)
			continue
		}
		r.wantRefusal(direct, c.code)
		if c.tag == "a..b" {
			continue // NATS carries no such subject
		}
		if over := r.ask(subject, c.count); over.code != direct.code || over.text != direct.text {
			t.Errorf("%q %q: %+v, over NATS %+v", c.tag, c.count, direct, over)
		}
	}
	for mode, tag := range map[worker.Mode]string{worker.Segment: "order", worker.Snowflake: ""} {
		f.mode = mode
		f.set(true)
		if got := r.askDirect(tag, ""); got.code != "503" || !strings.Contains(got.text, errRefused.Error()) {
			t.Errorf("%s while it is refused: %+v", mode, got)
		}
	}
}

func TestNoIDLeavesADirectRequestOnceItsModeIsRefused(t *testing.T) {
	f := &refuser{mode: worker.Segment}
	r := start(t, startServer(t), 0, newStore(t), f.edit)
	loads, proceed := make(chan struct{}, 10), make(chan struct{})
	r.store.OnLoad(func(_ context.Context, _ string, load func() (segment.Range, error)) (segment.Range, error) {
		loads <- struct{}{}
		<-proceed
		return load()
	})
	answers := make(chan reply, 1)
	go func() { answers <- r.askDirect("order", "") }()
	<-loads // the request is parked
	f.set(true)
	close(proceed)
	if got := <-answers; got.code != "503" || !strings.Contains(got.text, errRefused.Error()) {
		t.Errorf("a request that was parked before: %+v", got)
	}
}

// observed returns the next answer that was observed.
func (r *rig) observed() (a worker.Answer) {
	r.Helper()
	r.eventually("observe an answer", func() bool {
		select {
		case a = <-r.answers:
			return true
		default:
			return false
		}
	})
	return a
}

func TestADirectRequestIsRefusedByTheDeadlineAndObserved(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t))
	for len(r.answers) > 0 {
		<-r.answers
	}
	r.store.OnLoad(slowly(hang))
	began := time.Now()
	r.wantRefusal(r.askDirect("order", ""), "503")
	if took := time.Since(began); took > deadline+slack {
		t.Errorf("it was refused after %v", took)
	}
	if a := r.observed(); a.Mode != worker.Segment || a.Code != subjects.Unavailable || !a.Parked || a.Took <= 0 {
		t.Errorf("it was observed as %+v", a)
	}
	r.store.OnLoad(nil)
	r.ids(r.askDirect("", "7"), 7)
	if a := r.observed(); a.Mode != worker.Snowflake || a.Code != subjects.OK || a.IDs != 7 {
		t.Errorf("it was observed as %+v", a)
	}
}

func TestIDsOfBothWaysDiffer(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t))
	var mu sync.Mutex
	seen := make(map[string]bool)
	var wg sync.WaitGroup
	for range 4 {
		for _, ask := range []func() string{
			func() string { return r.askDirect("order", "").body },
			func() string { return r.askDirect("", "").body },
			func() string { got, _ := r.try("id.segment.order", ""); return got.body },
			func() string { got, _ := r.try("id.snowflake", ""); return got.body },
		} {
			wg.Go(func() {
				for range 200 {
					id := ask()
					mu.Lock()
					if id != "" && seen[id] {
						t.Errorf("%s was given twice", id)
					}
					seen[id] = true
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
}

func TestADirectRequestThatMemoryServesAllocatesNothing(t *testing.T) {
	r := start(t, startServer(t), 0, newStore(t), func(s *segment.Config, _ *worker.Config) { s.MaxStep = 1_000_000 })
	if _, err := r.store.Create(t.Context(), segment.Tag{Name: "long", Step: 1 << 30, MaxID: 1}, false); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, 0, 100)
	for name, ask := range map[string]func() ([]byte, error){
		"segment":   func() ([]byte, error) { return r.direct.Segment(body, "long", nil) },
		"snowflake": func() ([]byte, error) { return r.direct.Snowflake(body, nil) },
	} {
		n := testing.AllocsPerRun(1000, func() {
			if _, err := ask(); err != nil {
				t.Error(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
