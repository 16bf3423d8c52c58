package segment

import (
	"slices"
	"testing"
	"time"
)

func newTestSupply(ranges ...Range) *supply {
	s := newSupply(&stepRule{max: DefaultMaxStep, time: DefaultStepTime}, 0)
	for _, r := range ranges {
		s.stock.add(r, 0)
	}
	return &s
}

func TestAStockKeepsNothingBelowLeast(t *testing.T) {
	for least, want := range map[int64][]Range{
		0:   {{4, 11}, {101, 111}, {201, 211}},
		6:   {{6, 11}, {101, 111}, {201, 211}},
		11:  {{101, 111}, {201, 211}},
		105: {{105, 111}, {201, 211}},
		211: nil,
		999: nil,
	} {
		s := newTestSupply(Range{1, 11}, Range{101, 111})
		s.settle(0)
		held := s.stock.run.Load()
		if _, ok := held.take(3); !ok {
			t.Fatal("the stock is not open")
		}
		s.stock.drop(least, time.Second)
		s.stock.add(Range{201, 211}, time.Second) // a load that was under way
		s.stock.shut()
		if got := s.stock.take(s.stock.restLen, nil); !slices.Equal(got, want) {
			t.Errorf("least %d: %v is left, want %v", least, got, want)
		}
		if r, ok := held.take(1); ok {
			t.Errorf("least %d: a request that held the old run got %v", least, r)
		}
	}
}

func TestARequestRefusedByItsDeadlineMakesRoomForSmallerOnes(t *testing.T) {
	s := newTestSupply(Range{1, 11})
	var got []string
	push := func(name string, n int64, expires time.Time) {
		s.waiters.push(waiter{n: n, expires: expires, done: func(_ []Range, err error) {
			if err != nil {
				name += " refused"
			}
			got = append(got, name)
		}}, false, func() {})
	}
	now := time.Now()
	push("large", 50, now)
	push("small", 7, now.Add(time.Hour))
	push("too large now", 4, now.Add(time.Hour))
	deliver(s.waiters.expire(&s.stock, now, false, ErrNotLoaded))
	if want := []string{"large refused", "small"}; !slices.Equal(got, want) || s.waiters.demand() != 4 {
		t.Errorf("%q, %d IDs waited for; want %q and 4", got, s.waiters.demand(), want)
	}
	deliver(s.waiters.refuse(&s.stock, ErrClosed))
	if s.waiters.any() || len(got) != 3 {
		t.Errorf("%q, want all answered", got)
	}
}
