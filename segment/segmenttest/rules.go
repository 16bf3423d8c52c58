package segmenttest

import (
	"sync"
	"sync/atomic"

	"github.com/natsid/natsid/segment"
)

func (s *suite) rules() {
	bounds := segment.Rules{Min: 10, Max: 19, MaxHole: 8}
	made, err := s.Create(s.ctx, segment.Tag{Name: "ticket", Step: 4, MaxID: 10, Rules: bounds}, true)
	if err != nil || made.Rules.Max != 19 || made.Disabled {
		s.Fatalf("Create = %+v, %v", made, err)
	}
	for _, want := range []segment.Range{{Start: 10, End: 14}, {Start: 14, End: 18}, {Start: 18, End: 20}} {
		if got := s.load("ticket", 0, 0); got != want {
			s.Errorf("range %v, want %v", got, want)
		}
	}
	_, err = s.Load(s.ctx, "ticket", 1, 0)
	s.wantErr(err, segment.ErrExhausted)
	s.changeRules()
}

func (s *suite) changeRules() {
	to := func(max, hole int64) segment.Change {
		return segment.Change{Rules: func(r segment.Rules) segment.Rules {
			r.Max, r.MaxHole = max, hole
			return r
		}}
	}
	_, err := s.Update(s.ctx, "ticket", to(18, 0))
	s.wantErr(err, segment.ErrInvalid)
	t, err := s.Update(s.ctx, "ticket", to(99, 2))
	if err != nil || t.Rules.Max != 99 || t.MaxID != 20 || t.Rules.Min != 10 {
		s.Errorf("Update = %+v, %v", t, err)
	}
	if got := s.load("ticket", 0, 0); got.Len() != 1 {
		s.Errorf("with a hole of 2 at most a load reserves %v", got)
	}
	if err := s.Delete(s.ctx, "ticket"); err != nil {
		s.Fatal(err)
	}
	t, err = s.Create(s.ctx, segment.Tag{Name: "ticket", Step: 4, MaxID: 1}, true)
	if err != nil || t.Rules != (segment.Rules{}) || t.MaxID != 21 {
		s.Errorf("created again: %+v, %v; want another tag above the old IDs", t, err)
	}
}

// concurrentRules has many workers create a daily tag, and load from it at once.
func (s *suite) concurrentRules() {
	var group sync.WaitGroup
	var made, daily atomic.Int64
	so := segment.Tag{Name: "so", Step: 10, MaxID: 1, Rules: segment.Rules{Period: segment.Daily}}
	for range 8 {
		store := s.next()
		group.Go(func() {
			if _, err := store.Create(s.ctx, so, true); err == nil {
				made.Add(1)
			}
			l, err := store.Load(s.ctx, "so", 1, 0)
			if err == nil && l.Start > segment.Daily.Size() {
				daily.Add(1)
			} else if err == nil {
				s.Errorf("a load of a daily tag returned %v", l.Range)
			}
		})
	}
	group.Wait()
	if made.Load() != 1 || daily.Load() == 0 {
		s.Errorf("%d of 8 calls created the tag, and %d loads succeeded", made.Load(), daily.Load())
	}
}
