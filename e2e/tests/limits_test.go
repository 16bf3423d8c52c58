package tests

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// A drain takes IDs of a tag as fast as it can, from several callers.
type drain struct {
	ids, refused atomic.Int64
	stop         func()
}

func startDrain(t *testing.T, conn *nats.Conn, tag, batch string) *drain {
	d := new(drain)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				m, err := conn.RequestWithContext(ctx, subjects.DefaultNamespace.Segment(tag), []byte(batch))
				switch {
				case err != nil:
					continue
				case subjects.ParseError(m.Header) != nil:
					d.refused.Add(1)
					time.Sleep(time.Millisecond) // or the test machine does nothing else
					continue
				}
				runs, err := subjects.ParseRuns(m.Data)
				for _, r := range runs {
					d.ids.Add(r.Len())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	d.stop = sync.OnceFunc(func() { cancel(); callers.Wait() })
	t.Cleanup(d.stop)
	return d
}

// in returns how many IDs are issued in a time, and what that was on this machine.
func (d *drain) in(wait time.Duration) (ids int64, took time.Duration) {
	before, began := d.ids.Load(), time.Now()
	time.Sleep(wait)
	return d.ids.Load() - before, time.Since(began)
}

// throttle throttles each tag, again if a busy machine refuses it.
func throttle(t *testing.T, c *e2e.Cluster, rate int64) {
	t.Helper()
	waitFor(t, "the throttle is taken", func() bool {
		req := wire.Throttle{Rate: &rate}
		_, err := natstest.Ask[any](patient(t), c.Conn, wire.ThrottleSubject(subjects.DefaultNamespace), req)
		return err == nil
	})
}

func TestAThrottleHoldsInAllWorkersAndAfterARestart(t *testing.T) {
	if testing.Short() {
		t.Skip("a rate is seen over seconds")
	}
	c := e2e.Start(t, e2e.Config{Workers: 3})
	const rate, while = 50, time.Second / 2
	order := startDrain(t, c.Conn, "order", "10")
	defer order.stop()
	// At this speed a throttle of the rate would show.
	fast := func(d *drain) bool { n, took := d.in(while); return float64(n) > 10*rate*took.Seconds() }
	waitFor(t, "more IDs than the throttle will allow", func() bool { return fast(order) })
	throttle(t, c, rate)
	waitFor(t, "the throttle holds", func() bool { n, _ := order.in(while); return n <= 2*rate+3*10 })
	c.StopWorker(1)
	c.StartWorker(1)
	// Until it knows how many they are, it may take the whole rate.
	if n, took := order.in(while); n > 2*(2*rate+3*10)+int64(2*rate*(took-while).Seconds()) {
		t.Errorf("%d IDs in %v after a restart", n, took)
	}
	info, err := c.Client.ListTags(patient(t), subjects.TagList{})
	if err != nil || len(info) != 1 || info[0].Throttle != rate {
		t.Errorf("%+v, %v", info, err)
	}
	throttle(t, c, 0)
	waitFor(t, "the throttle ends", func() bool { return fast(order) })
}
