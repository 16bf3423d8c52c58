package metrics

import (
	"time"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/worker"
)

// Totals are counts of one mode since the process started.
type Totals struct {
	Requests, Refused, IDs int64
	Took                   [mostBits + 2]int64 // answers within 2^n ns, but not 2^(n-1); the last: longer ones, too
}

// Totals returns the counts of a mode so far.
func (m *Metrics) Totals(mode worker.Mode) (t Totals) {
	r := m.of(mode)
	t.IDs = r.ids.Load()
	for code, a := range r.codes {
		answered := int64(0)
		for n := range a.buckets {
			took := int64(a.buckets[n].Load())
			t.Took[leastBits+n] += took
			answered += took
		}
		t.Requests += answered
		if code != wire.OK {
			t.Refused += answered
		}
	}
	return t
}

// Refusals returns how many requests of a mode were answered with an error, by the error's code.
func (m *Metrics) Refusals(mode worker.Mode) map[string]int64 {
	all := make(map[string]int64)
	for code, a := range m.of(mode).codes {
		if n := int64(a.count()); n > 0 && code != wire.OK {
			all[code.String()] = n
		}
	}
	return all
}

// Since returns the difference between t and the earlier counts in before.
func (t Totals) Since(before Totals) Totals {
	t.Requests -= before.Requests
	t.Refused -= before.Refused
	t.IDs -= before.IDs
	for n := range t.Took {
		t.Took[n] -= before.Took[n]
	}
	return t
}

// Within returns the time within which the given share of the answers came, 0 < share <= 1; 0 without answers.
func (t Totals) Within(share float64) time.Duration {
	var all, count int64
	for _, n := range t.Took {
		all += n
	}
	if all == 0 {
		return 0
	}
	for n := range t.Took {
		if count += t.Took[n]; float64(count) >= share*float64(all) {
			return 1 << n
		}
	}
	return 1 << len(t.Took)
}
