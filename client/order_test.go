package client_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/testkit/ledger"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/subjects"
)

// Workers serve a strict tag so: IDs rise with the requests that arrive, while answers are
// late, lost, refused, or overtake one another. If a call began after another had ended, on
// any connection, it gets a higher ID.
func TestIDsOfAStrictTagRiseFromCallToCall(t *testing.T) {
	t.Parallel()
	const callers, calls, limit = 24, 250, 5
	url := natstest.Start(t)
	d := openDesk(t, natstest.Connect(t, url))
	var late sync.WaitGroup
	defer late.Wait()
	d.say(func(number, n int, m *nats.Msg) bool {
		switch {
		case n > limit:
			refuseWith(t, m, subjects.BadRequest, subjects.HeaderMaxBatch, "5") // it is split
			return true
		case number%97 == 0:
			refuseWith(t, m, subjects.Unavailable, subjects.HeaderRetryAfter, "0") // another copy is sent
			return true
		case number%501 == 0:
			return false // a copy is sent after silence
		}
		first := d.last + 1
		d.last += int64(n)
		late.Add(1)
		time.AfterFunc(rand.N(2*time.Millisecond), func() {
			defer late.Done()
			answer(t, m, string(subjects.AppendRun(nil, first, first+int64(n)-1)))
		})
		return true
	})
	handles := make([]*client.Handle, 3)
	for i := range handles {
		handles[i] = patient(natstest.Connect(t, url)).Segment("order")
	}
	var order ledger.Order
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			h := handles[c%len(handles)]
			for i := range calls {
				had := order.Begin()
				runs := client.Runs{{}}
				var err error
				if i%10 == 0 {
					runs, err = h.NextN(t.Context(), 1+i%limit)
				} else {
					var id client.ID
					id, err = h.Next(t.Context())
					runs[0] = subjects.Run{First: int64(id), Last: int64(id)}
				}
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range runs {
					if _, err := order.End(had, r.First, r.Last); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	got := order.Report()
	if got.Answers < callers*calls || got.Inversions > 0 {
		t.Errorf("%+v, want none out of order", got)
	}
	var requests, hedges, retries int64
	for _, h := range handles {
		s := h.Stats()
		requests, hedges, retries = requests+s.Requests, hedges+s.Hedges, retries+s.Retries
	}
	if requests > callers*calls*3/4 || hedges == 0 || retries == 0 {
		t.Errorf("%d requests, %d hedges, %d retries: no calls share requests, or no copies", requests, hedges, retries)
	}
}
