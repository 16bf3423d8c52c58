package worker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/worker"
)

// A worker at rest hardly looks at what it can serve: requests, reasons and the loss of its number wake it.
func TestAWorkerAtRestIsWoken(t *testing.T) {
	var reasons worker.Reasons
	rests5m := func(_ *segment.Config, cfg *worker.Config) { cfg.Rest, cfg.Reasons = 5*time.Minute, &reasons }
	r := start(t, startServer(t), 1, newStore(t), rests5m)
	rests := func() bool { return r.worker.WakesAt() > 0 }

	r.eventually("rest", rests)
	before := r.worker.WakesAt()
	for range before {
		r.one("id.segment.order")
	}
	r.eventually("look when requests arrive", func() bool { return r.worker.WakesAt() != before })

	r.eventually("rest again", rests)
	reasons.Set(worker.Store, errors.New("another worker can load"), worker.Segment)
	r.eventually("leave", func() bool { return r.worker.Trouble(worker.Segment) != nil })
	reasons.Clear(worker.Store, worker.Segment)
	r.eventually("come back", func() bool { return r.worker.Trouble(worker.Segment) == nil && rests() })

	r.issuer.Use(nil)
	r.worker.Wake()
	r.eventually("see that there is no number", func() bool { return r.worker.Trouble(worker.Snowflake) != nil })
	r.issuer.Use(r.generator(time.Hour))
	r.eventually("serve snowflakes", func() bool { return r.worker.Trouble(worker.Snowflake) == nil })
}
