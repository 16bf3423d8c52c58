package ledger_test

import (
	"slices"
	"testing"

	"github.com/natsid/natsid/internal/testkit/ledger"
)

// A request of a test: it begins and ends at moments of the table's own clock.
type request struct{ began, ended, first, last int64 }

func TestWhatArrivesTooLateIsAnInversion(t *testing.T) {
	for _, tc := range []struct {
		law      string
		requests []request
		want     []ledger.Inversion
	}{
		{"nothing", nil, nil},
		{"one after the other", []request{{0, 1, 1, 1}, {2, 3, 2, 9}, {4, 5, 10, 10}}, nil},
		{"holes are no inversion", []request{{0, 1, 1, 1}, {2, 3, 1 << 40, 1 << 40}}, nil},
		{"a lower ID, asked for after a higher one had arrived",
			[]request{{0, 1, 5, 5}, {2, 3, 4, 4}}, []ledger.Inversion{{Run: ledger.Run{First: 4, Last: 4}, Had: 5}}},
		{"a lower ID, asked for before", []request{{0, 2, 5, 5}, {1, 3, 4, 4}}, nil},
		{"a lower ID, long under way", []request{{0, 9, 1, 1}, {1, 2, 5, 5}, {3, 4, 6, 6}}, nil},
		{"the start of a run counts", []request{{0, 1, 5, 5}, {2, 3, 4, 9}},
			[]ledger.Inversion{{Run: ledger.Run{First: 4, Last: 9}, Had: 5}}},
		{"and the end of the one before", []request{{0, 1, 1, 5}, {2, 3, 5, 5}},
			[]ledger.Inversion{{Run: ledger.Run{First: 5, Last: 5}, Had: 5}}},
		{"an inversion hides no other", []request{{0, 1, 9, 9}, {2, 3, 3, 3}, {4, 5, 8, 8}, {6, 7, 10, 10}},
			[]ledger.Inversion{
				{Run: ledger.Run{First: 3, Last: 3}, Had: 9},
				{Run: ledger.Run{First: 8, Last: 8}, Had: 9},
			}},
	} {
		t.Run(tc.law, func(t *testing.T) {
			var o ledger.Order
			had := map[request]int64{}
			for now := range int64(10) {
				for _, r := range tc.requests {
					switch now {
					case r.began:
						had[r] = o.Begin()
					case r.ended:
						if _, err := o.End(had[r], r.first, r.last); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			got := o.Report()
			if got.Answers != int64(len(tc.requests)) || got.Inversions != int64(len(tc.want)) ||
				!slices.Equal(got.Examples, tc.want) {
				t.Errorf("%+v, want %v", got, tc.want)
			}
		})
	}
}
