package tests

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/e2e"
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

// in returns how many IDs are issued in a time.
func (d *drain) in(wait time.Duration) int64 {
	before := d.ids.Load()
	time.Sleep(wait)
	return d.ids.Load() - before
}

// throttle throttles, again if a busy machine refuses it.
func throttle(t *testing.T, c *e2e.Cluster, req subjects.Throttle) {
	t.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if _, err = c.Client.Throttle(t.Context(), req); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func TestAThrottleHoldsInAllWorkersAndAfterARestart(t *testing.T) {
	if testing.Short() {
		t.Skip("a rate is seen over seconds")
	}
	c := e2e.Start(t, e2e.WithWorkers(3))
	const rate, while = 50, time.Second / 2
	free, order := startDrain(t, c.Conn, "free", "100"), startDrain(t, c.Conn, "order", "10")
	defer func() { free.stop(); order.stop() }()
	eventually := func(what string, held func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !held(); {
			if time.Now().After(end) {
				t.Fatal("not in time: ", what)
			}
		}
	}
	eventually("more IDs than the throttle will allow", func() bool { return order.in(while) > 10*rate })
	throttle(t, c, subjects.Throttle{Tag: "order", Rate: rate})
	eventually("the throttle holds", func() bool { return order.in(while) <= 2*rate+3*10 })
	if n := free.in(while); n == 0 {
		t.Error("another tag is throttled, too")
	}
	c.StopWorker(1)
	c.StartWorker(1)
	// Until it knows how many they are, it may take the whole rate.
	if n := order.in(while); n > 2*(2*rate+3*10) {
		t.Errorf("%d IDs in %v after a restart", n, while)
	}
	info, err := c.Client.ListTags(t.Context(), subjects.TagList{})
	if err != nil || len(info) != 2 || info[0].Throttle != 0 || info[1].Throttle != rate {
		t.Errorf("%+v, %v", info, err)
	}
	throttle(t, c, subjects.Throttle{Off: true})
	eventually("the throttle ends", func() bool { return order.in(while) > 10*rate })
}
