package worker_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// A request that the server has routed to a worker that leaves is answered by it; one
// that comes later learns that nobody serves. None is lost between the two.
func TestEveryRequestIsAnsweredHoweverOftenAWorkerLeavesAndComesBack(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t)
	var reasons worker.Reasons
	r := start(t, url, 0, newStore(t), func(_ *segment.Config, cfg *worker.Config) { cfg.Reasons = &reasons })
	// Few enough that a slow machine is not overloaded: a worker would leave for that, too.
	const conns, outstanding = 4, 30
	var sent, ids, none, other atomic.Int64
	answered := func() int64 { return ids.Load() + none.Load() + other.Load() }
	var flood sync.WaitGroup
	var stopped atomic.Bool
	defer func() { stopped.Store(true); flood.Wait() }()
	for range conns {
		nc := connect(t, url)
		inbox := nc.NewInbox()
		answers, err := nc.Subscribe(inbox, func(m *nats.Msg) {
			switch {
			case m.Header.Get("Status") == "503":
				none.Add(1)
			case m.Header.Get(subjects.HeaderErrorCode) != "":
				other.Add(1)
			default:
				ids.Add(1)
			}
		})
		if err == nil {
			err = answers.SetPendingLimits(-1, -1)
		}
		if err != nil {
			t.Fatal(err)
		}
		flood.Go(func() {
			for !stopped.Load() {
				for _, subject := range []string{"id.snowflake", "id.snowflake.1", "id.segment.order"} {
					if err := nc.PublishRequest(subject, inbox, nil); err != nil {
						t.Error(err)
					}
				}
				for sent.Add(3); sent.Load()-answered() > outstanding && !stopped.Load(); {
					time.Sleep(time.Millisecond)
				}
			}
			if err := nc.FlushTimeout(time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
	began := time.Now()
	for cycle := range 20 {
		if cycle > 2 && time.Since(began) > 20*time.Second {
			break // the machine is slow
		}
		for _, leave := range []bool{true, false} {
			if leave {
				reasons.Set(worker.Store, errors.New("away"), worker.Segment, worker.Snowflake, worker.Tags)
			} else {
				reasons.Clear(worker.Store, worker.Segment, worker.Snowflake, worker.Tags)
			}
			r.eventually("leave or come back", func() bool {
				return (r.worker.Trouble(worker.Snowflake) != nil) == leave
			})
			// A cycle counts if requests met both: a slow machine could send none in between.
			answer, what := &ids, "issue an ID"
			if leave {
				answer, what = &none, "leave a request to nobody"
			}
			before := answer.Load()
			r.eventually(what, func() bool { return answer.Load() > before })
		}
	}
	stopped.Store(true)
	flood.Wait()
	r.eventually("answer all", func() bool { return answered() >= sent.Load() })
	if answered() != sent.Load() || ids.Load() == 0 || none.Load() == 0 {
		t.Errorf("%d sent, %d IDs, %d learnt that nobody serves, %d others", sent.Load(), ids.Load(), none.Load(),
			other.Load())
	}
}
