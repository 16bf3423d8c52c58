package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// A call may look for the group that gathers, and join it only later.
func TestNoCallJoinsABatchThatHasLeft(t *testing.T) {
	nc := natstest.Connect(t, natstest.Start(t))
	issue := func(m *nats.Msg) { _ = m.Respond([]byte("1")) }
	if _, err := nc.QueueSubscribe("id.segment.order", wire.QueueGroup, issue); err != nil {
		t.Fatal(err)
	}
	c := Must(New(nc, Config{}))
	t.Cleanup(c.Close)
	h := Must(c.Segment("order", SegmentConfig{}))
	seen := h.merger.gathering.Load()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := h.Next(ctx); err != nil {
		t.Fatal(err)
	}
	if i := seen.joined.Add(1) - 1; i < sealed {
		t.Errorf("a call joins it as number %d", i)
	}
}

func TestALargeCrowdThatIsBeingWokenSharesTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ woke, want time.Duration }{
			{0, gapLeast}, {10 * time.Microsecond, gapLeast}, {3 * time.Millisecond, 3 * time.Millisecond},
			{time.Minute, slowAfter}, // the machine stood still
		} {
			m := newMerger(&target{client: new(Client), most: 1000})
			m.underWay, m.left, m.woke = make([]*batch, 2), time.Now(), c.woke
			if wait := m.mustWait(m.gathering.Load()); wait != c.want {
				t.Errorf("calls woken in %v: the next batch waits for %v, want %v", c.woke, wait, c.want)
			}
			m.underWay = nil
			if wait := m.mustWait(m.gathering.Load()); wait != 0 {
				t.Errorf("calls woken in %v, none under way: the next batch waits for %v", c.woke, wait)
			}
		}
	})
}

func TestABatchThatCannotLeaveTurnsSlowWhenItHasWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMerger(&target{client: &Client{cfg: Config{Timeout: time.Hour}}, most: 1000})
		defer m.timer.Stop()
		m.underWay = make([]*batch, mostUnderWay)
		began := time.Now()
		g, _, err := m.join()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { g.batch.timer.Stop() }()
		time.Sleep(slowAfter / 2)
		m.tick() // for a wait that was shorter when the timer was set
		m.tick()
		select {
		case <-g.woken:
			t.Fatalf("it turns slow after %v", time.Since(began))
		default:
		}
		if <-g.woken; time.Since(began) != slowAfter {
			t.Errorf("it turns slow after %v, want %v", time.Since(began), slowAfter)
		}
	})
}

func TestACallThatNobodyObservesAllocatesNothingForThat(t *testing.T) {
	c, ctx := new(Client), t.Context()
	if n := testing.AllocsPerRun(1000, func() { c.observe(ctx, "id.snowflake", time.Now(), 1, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A group is small where few calls more may wait.
func TestGroupsOfAnySizeAreWokenOneAfterTheOther(t *testing.T) {
	for _, room := range []int64{0, 1, 3, groupSize} {
		synctest.Test(t, func(t *testing.T) {
			m := newMerger(&target{client: &Client{cfg: Config{Timeout: time.Hour}}, most: 1000})
			defer m.timer.Stop()
			m.underWay = []*batch{{}, {}, {}, {}} // so the batch must wait
			b := m.newBatch(room)
			m.gathering.Store(&b.first)
			type call struct {
				g *group
				i int64
			}
			var calls []call
			for range room + 2*groupSize {
				g, i, err := m.join()
				if err != nil {
					t.Fatal(err)
				}
				calls = append(calls, call{g, i})
			}
			m.gathering.Store(&m.newBatch(0).first)
			b.n, b.asked = int64(len(calls)), int64(len(calls))
			b.answer(subjects.Runs{{First: 1, Last: subjects.ID(b.n)}}, nil)
			for n, c := range calls {
				select {
				case <-c.g.woken:
				default:
					t.Fatalf("a first group of %d: call %d is not woken", room, n)
				}
				if id, err := c.g.id(t.Context(), c.i, false); id != subjects.ID(n+1) || err != nil {
					t.Fatalf("a first group of %d: call %d gets %d, %v", room, n, id, err)
				}
			}
		})
	}
}

func TestAFlightThatHasEndedAnswersNobodyAgain(t *testing.T) {
	f := &flight{
		ended: true, open: []trip{{token: 1}}, target: &target{client: new(Client)}, timer: time.NewTimer(time.Hour),
		wanted: func() bool { return false }, done: func(answer) { t.Error("its calls are answered again") },
	}
	defer func() {
		if recover() != nil {
			t.Error("it does more than nothing")
		}
	}()
	f.tick()
	f.receive(1, nil, errUnwanted)
}
