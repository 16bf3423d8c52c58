package linear_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/ledger"
	"github.com/natsid/natsid/internal/testkit/linear"
)

const patience = 10 * time.Second

func TestVerdicts(t *testing.T) {
	for _, tc := range []struct {
		law     string
		history []linear.Grant
		want    linear.Verdict
	}{
		{"nothing", nil, linear.Rises},
		{"one after the other", []linear.Grant{{1, 5, 0, 1}, {6, 6, 2, 3}, {9, 12, 4, 5}}, linear.Rises},
		{"one after the other, and lower", []linear.Grant{{6, 6, 0, 1}, {1, 5, 2, 3}}, linear.Falls},
		{"at once, in any order", []linear.Grant{{6, 6, 0, 3}, {1, 5, 1, 2}}, linear.Rises},
		{"a run that begins above and ends below", []linear.Grant{{5, 5, 0, 1}, {4, 9, 2, 3}}, linear.Falls},
		{"an ID twice", []linear.Grant{{5, 5, 0, 3}, {5, 5, 1, 2}}, linear.Falls},
		{"a third between two", []linear.Grant{{3, 3, 0, 9}, {4, 4, 1, 2}, {2, 2, 3, 4}}, linear.Falls},
	} {
		t.Run(tc.law, func(t *testing.T) {
			if got := linear.Judge(tc.history, patience); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// As after a pause of all workers: a thousand callers wait at once.
func TestAHistoryOfManyAtOnceIsDecidedSoon(t *testing.T) {
	const many = 1000
	history := make([]linear.Grant, many)
	for i, n := range rand.New(rand.NewPCG(1, 2)).Perm(many) {
		id := int64(2*n + 2)
		history[i] = linear.Grant{First: id, Last: id, Began: int64(i), Ended: int64(many + n)}
	}
	if got := linear.Judge(history, time.Minute); got != linear.Rises {
		t.Errorf("%v, want an order", got)
	}
	late := linear.Grant{First: many + 1, Last: many + 1, Began: 3 * many, Ended: 3*many + 1}
	if got := linear.Judge(append(history, late), time.Minute); got != linear.Falls {
		t.Errorf("%v, want none", got)
	}
}

// Three judges: porcupine, the ledger's order, and the promise word by word.
func TestTheLedgerAndPorcupineAgreeOnRandomHistories(t *testing.T) {
	const histories = 2000
	var fell int
	for seed := range uint64(histories) {
		history := random(rand.New(rand.NewPCG(seed, 0)))
		want := linear.Rises
		for _, a := range history {
			for _, b := range history {
				if a.Ended < b.Began && a.Last >= b.First {
					want = linear.Falls
				}
			}
		}
		if want == linear.Falls {
			fell++
		}
		if got := linear.Judge(history, patience); got != want {
			t.Errorf("seed %d: porcupine says %v, want %v: %v", seed, got, want, history)
		}
		if got := byLedger(t, history); (got.Inversions == 0) != (want == linear.Rises) ||
			got.Answers != int64(len(history)) || len(got.Examples) != int(min(got.Inversions, 10)) {
			t.Errorf("seed %d: the ledger says %+v, want %v: %v", seed, got, want, history)
		}
	}
	if fell < histories/4 || fell > histories*3/4 {
		t.Errorf("%d of %d histories are out of order: too few of a kind", fell, histories)
	}
}

// random returns a history of up to 12 requests by up to 4 callers. Each is granted the
// next run at a moment between its begin and its end; in half of the histories one run is
// then exchanged with another.
func random(r *rand.Rand) []linear.Grant {
	type moment struct{ at, grant int }
	history := make([]linear.Grant, 2+r.IntN(11))
	var moments []moment
	last := int64(0)
	free := make([]int64, 1+r.IntN(4)) // when each caller is
	for i := range history {
		caller := r.IntN(len(free))
		began := free[caller] + 1 + r.Int64N(5)
		ended := began + 2 + r.Int64N(10)
		free[caller] = ended
		history[i] = linear.Grant{Began: began * 100, Ended: ended * 100}
		moments = append(moments, moment{int(began*100 + 1 + r.Int64N((ended-began)*100-1)), i})
	}
	slices.SortFunc(moments, func(a, b moment) int { return a.at - b.at })
	for _, m := range moments {
		first := last + 1 + r.Int64N(3)
		last = first + r.Int64N(3)
		history[m.grant].First, history[m.grant].Last = first, last
	}
	if a, b := &history[0], &history[r.IntN(len(history))]; r.IntN(2) == 0 {
		a.First, a.Last, b.First, b.Last = b.First, b.Last, a.First, a.Last
	}
	return history
}

// byLedger plays the begins and ends of a history to an order, as they came. Where an
// end and a begin are at one moment the two are concurrent, so the begin comes first.
func byLedger(t *testing.T, history []linear.Grant) ledger.OrderReport {
	var o ledger.Order
	had := make([]int64, len(history))
	type event struct {
		at    int64
		ends  bool
		grant int
	}
	var events []event
	for i, g := range history {
		events = append(events, event{g.Began, false, i}, event{g.Ended, true, i})
	}
	slices.SortStableFunc(events, func(a, b event) int {
		if a.at == b.at && a.ends != b.ends {
			if b.ends {
				return -1
			}
			return 1
		}
		return int(a.at - b.at)
	})
	for _, e := range events {
		g := history[e.grant]
		if !e.ends {
			had[e.grant] = o.Begin()
			continue
		}
		if _, err := o.End(had[e.grant], g.First, g.Last); err != nil {
			t.Fatal(err)
		}
	}
	return o.Report()
}
