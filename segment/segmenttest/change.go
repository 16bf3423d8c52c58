package segmenttest

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/natsid/natsid/segment"
)

func (s *suite) update(tag string, c segment.Change) segment.Tag {
	s.Helper()
	got, err := s.Update(s.ctx, tag, c)
	if err != nil {
		s.Fatalf("Update(%s, %+v): %v", tag, c, err)
	}
	return got
}

func (s *suite) look(tag string) segment.Tag {
	s.Helper()
	got, err := s.Look(s.ctx, tag)
	if err != nil {
		s.Fatalf("Look(%s): %v", tag, err)
	}
	return got
}

func (s *suite) updateParts() {
	s.create("order", 10, 1)
	s.load("order", 0, 0)
	text := "new"
	for _, tc := range []struct {
		change segment.Change
		want   segment.Tag
	}{
		{segment.Change{}, segment.Tag{Step: 10, MaxID: 11, Description: "of order"}},
		{segment.Change{Step: 20}, segment.Tag{Step: 20, MaxID: 11, Description: "of order"}},
		{segment.Change{Description: &text}, segment.Tag{Step: 20, MaxID: 11, Description: "new"}},
		{segment.Change{MaxID: 500}, segment.Tag{Step: 20, MaxID: 500, Least: 500, Description: "new"}},
		{segment.Change{RaiseBy: 30}, segment.Tag{Step: 20, MaxID: 530, Least: 530, Description: "new"}},
		{segment.Change{Description: new(string)}, segment.Tag{Step: 20, MaxID: 530, Least: 530}},
	} {
		got, seen := s.update("order", tc.change), s.look("order")
		tc.want.Name = "order"
		for _, t := range []segment.Tag{got, seen} {
			if time.Since(t.Updated).Abs() > time.Minute {
				s.Errorf("%+v: updated %v", tc.change, t.Updated)
			}
			if t.Updated = (time.Time{}); t != tc.want {
				s.Errorf("%+v: %+v, want %+v", tc.change, t, tc.want)
			}
		}
	}
	l, err := s.Load(s.ctx, "order", 0, 0)
	if err != nil || l.Range != (segment.Range{Start: 530, End: 550}) || l.Step != 20 || l.Least != 530 {
		s.Errorf("then a load: %+v, %v, want 20 from 530, and Least 530", l, err)
	}
}

func (s *suite) updateRefused() {
	s.create("order", 10, 500)
	text := "changed"
	for _, c := range []segment.Change{
		{Step: -1}, {Step: segment.MaxStep + 1}, {MaxID: -1}, {RaiseBy: -1}, {MaxID: 600, RaiseBy: 5},
		{MaxID: 499}, {MaxID: 1}, {RaiseBy: math.MaxInt64}, {RaiseBy: math.MaxInt64 - 499},
		{MaxID: 501 + segment.MaxRaise}, {RaiseBy: 1 + segment.MaxRaise},
		{RaiseBy: math.MaxInt64, Force: true}, {MaxID: 499, Force: true},
	} {
		c.Description = &text
		_, err := s.Update(s.ctx, "order", c)
		s.wantErr(err, segment.ErrInvalid)
		if (c.MaxID == 499 || c.RaiseBy > 5) && !strings.Contains(err.Error(), "next_id is 500") {
			s.Errorf("%+v: %v, want the present mark", c, err)
		}
	}
	if got := s.look("order"); got.MaxID != 500 || got.Step != 10 || got.Description != "of order" {
		s.Errorf("after refusals: %+v, want nothing changed", got)
	}
	s.update("order", segment.Change{MaxID: 500}) // as high as it is
	s.update("order", segment.Change{MaxID: 500}) // the same again
	s.update("order", segment.Change{RaiseBy: segment.MaxRaise})
	s.update("order", segment.Change{RaiseBy: 1 + segment.MaxRaise, Force: true})
	_, err := s.Update(s.ctx, "unknown", segment.Change{Step: 5})
	s.wantErr(err, segment.ErrUnknownTag)
	_, err = s.Look(s.ctx, "unknown")
	s.wantErr(err, segment.ErrUnknownTag)
	if err := s.Delete(s.ctx, "order"); err != nil {
		s.Fatal(err)
	}
	_, err = s.Update(s.ctx, "order", segment.Change{Step: 5})
	s.wantErr(err, segment.ErrDisabled)
	if err := s.Delete(s.ctx, "order"); err != nil {
		s.Errorf("deleted once more: %v", err)
	}
}

// updateRaces raises the mark beside loads. No two ranges may share an ID, and a load that begins after a raise has
// ended must be above it.
func (s *suite) updateRaces() {
	s.create("order", 10, 1)
	var mu sync.Mutex
	var ranges []segment.Range
	raised := int64(1)
	var wg sync.WaitGroup
	for i := range 6 {
		store := s.next()
		wg.Go(func() {
			for range 40 {
				mu.Lock()
				least := raised
				mu.Unlock()
				if i == 0 {
					t, err := store.Update(s.ctx, "order", segment.Change{RaiseBy: 1 + rand.Int64N(50)})
					if err != nil {
						s.Errorf("Update: %v", err)
						return
					}
					mu.Lock()
					raised = t.MaxID
					mu.Unlock()
					continue
				}
				l, err := store.Load(s.ctx, "order", 0, 0)
				if err != nil {
					s.Errorf("Load: %v", err)
					return
				}
				if l.Start < least || l.Least < least && least > 1 {
					s.Errorf("loaded %+v after the mark was raised to %d", l, least)
				}
				mu.Lock()
				ranges = append(ranges, l.Range)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s.disjoint(ranges)
}

func (s *suite) poll() {
	for _, name := range []string{"a", "b", "c"} {
		s.create(name, 10, 1)
	}
	s.load("b", 0, 0)
	if err := s.Delete(s.ctx, "c"); err != nil {
		s.Fatal(err)
	}
	s.update("a", segment.Change{RaiseBy: 100})
	got := make(map[string]segment.Tag)
	err := s.Poll(s.ctx, func(l segment.Listing) {
		for _, t := range l.Tags {
			got[t.Name] = t
		}
	})
	if err != nil || len(got) != 3 {
		s.Fatalf("Poll: %v, %v", got, err)
	}
	for name, want := range map[string]segment.Tag{
		"a": {MaxID: 101, Least: 101}, "b": {MaxID: 11}, "c": {MaxID: 1, Disabled: true},
	} {
		t, seen := got[name], s.look(name)
		if t.MaxID != want.MaxID || t.Least != want.Least || t.Disabled != want.Disabled || t.Step != 10 ||
			t.Description != "of "+name {
			s.Errorf("%s polled as %+v, want %+v", name, t, want)
		}
		if seen.MaxID != t.MaxID || seen.Least != t.Least || seen.Disabled != t.Disabled ||
			time.Since(t.Updated).Abs() > time.Minute {
			s.Errorf("%s: %+v polled, %+v seen", name, t, seen)
		}
	}
	if got := s.load("b", 0, 0); got.Start != 11 {
		s.Errorf("a load after the poll: %v", got)
	}
}
