package worker_test

import (
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// A worker at rest hardly looks at what it can serve: requests, orders and the loss of its number wake it.
func TestAWorkerAtRestIsWoken(t *testing.T) {
	rests5m := func(_ *segment.Config, cfg *worker.Config) { cfg.Rest = 5 * time.Minute }
	r := start(t, startServer(t), 1, newStore(t), obeys, rests5m)
	orders := r.orders()
	rests := func() bool { return r.worker.WakesAt() > 0 }

	r.eventually("rest", rests)
	before := r.worker.WakesAt()
	for range before {
		r.one("id.segment.order")
	}
	r.eventually("look when requests arrive", func() bool { return r.worker.WakesAt() != before })

	r.eventually("rest again", rests)
	if s := r.order(orders, ""); !s.Drained {
		t.Errorf("answered %+v", s)
	}
	r.eventually("come back", func() bool { return r.order(orders, `{"undo":true}`).Drained == false && rests() })

	r.issuer.Use(nil)
	r.worker.Wake()
	r.eventually("see that there is no number", func() bool { return r.worker.Trouble(worker.Snowflake) != nil })
	r.issuer.Use(r.generator(time.Hour))
	r.eventually("serve snowflakes", func() bool { return r.worker.Trouble(worker.Snowflake) == nil })
}
