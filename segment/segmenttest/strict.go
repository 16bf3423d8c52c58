package segmenttest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/natsid/natsid/segment"
)

// loadStrict loads n IDs of the tag order in strict order.
func (s *suite) loadStrict(n int64) segment.Loaded {
	s.Helper()
	joins := 0
	l, err := s.LoadStrict(s.ctx, "order", func() int64 { joins++; return n }, 0)
	if err != nil || joins != 1 {
		s.Fatalf("LoadStrict of %d = %v, %v, after %d calls of join", n, l, err, joins)
	}
	return l
}

// createStrict creates the strict tag order, of step 10.
func (s *suite) createStrict() {
	s.Helper()
	t := segment.Tag{Name: "order", Step: 10, MaxID: 1, Rules: segment.Rules{Strict: true}}
	if _, err := s.Create(s.ctx, t, false); err != nil {
		s.Fatal(err)
	}
}

// strictTags checks that the order of a tag is read before anything is reserved, and never changes.
func (s *suite) strictTags() {
	s.createStrict()
	s.create("loose", 10, 1)
	for _, store := range []segment.Store{s.Store, s.next()} {
		l, err := store.Load(s.ctx, "order", 5, 0)
		if s.wantErr(err, segment.ErrStrict); l.Len() > 0 || l.Step != 10 || !l.Rules.Strict {
			s.Errorf("it is %+v", l)
		}
	}
	if l := s.loadStrict(3); l.Range != (segment.Range{Start: 1, End: 4}) {
		s.Errorf("loaded %v, want 1 to 3: nothing was reserved before", l)
	}
	loosen := func(r segment.Rules) segment.Rules { r.Strict, r.MaxHole = !r.Strict, 5; return r }
	t, err := s.Update(s.ctx, "order", segment.Change{Rules: loosen})
	if err != nil || !t.Rules.Strict || t.Rules.MaxHole != 5 {
		s.Errorf("an update makes it %+v, %v", t, err)
	}
	_, err = s.Update(s.ctx, "loose", segment.Change{Rules: loosen})
	s.wantErr(err, segment.ErrInvalid)
	for _, tag := range []string{"order", "loose"} {
		if err := s.Delete(s.ctx, tag); err != nil {
			s.Fatal(err)
		}
	}
	t, err = s.Create(s.ctx, segment.Tag{Name: "order", Step: 20}, true)
	if err != nil || !t.Rules.Strict || t.Step != 20 {
		s.Errorf("revived, it is %+v, %v", t, err)
	}
	_, err = s.Create(s.ctx, segment.Tag{Name: "loose", Step: 20, Rules: segment.Rules{Strict: true}}, true)
	s.wantErr(err, segment.ErrInvalid)
}

func (s *suite) strictLoads() {
	s.createStrict()
	for _, want := range []segment.Range{{Start: 1, End: 2}, {Start: 2, End: 27}} {
		if l := s.loadStrict(want.Len()); l.Range != want || l.Step != 10 {
			s.Errorf("loaded %v, want exactly %v and the step 10", l, want)
		}
	}
	_, err := s.LoadStrict(s.ctx, "unknown", func() int64 { return 1 }, 0)
	s.wantErr(err, segment.ErrUnknownTag)
	ctx, end := context.WithCancel(s.ctx)
	_, err = s.LoadStrict(ctx, "order", func() int64 { end(); return 5 }, 0)
	s.wantErr(err, context.Canceled)
	if l := s.loadStrict(1); l.Range != (segment.Range{Start: 27, End: 28}) {
		s.Errorf("loaded %v, want 27 alone: the load before ended when it would have sent its compare-and-set", l)
	}
	s.update("order", segment.Change{Rules: func(r segment.Rules) segment.Rules { r.Max = 30; return r }})
	_, err = s.LoadStrict(s.ctx, "order", func() int64 { return 4 }, 0)
	if x, ok := errors.AsType[*segment.ExhaustedError](err); !ok || x.Left != 3 {
		s.Errorf("4 of the last 3: %v", err)
	}
	if l := s.loadStrict(3); l.Range != (segment.Range{Start: 28, End: 31}) {
		s.Errorf("loaded %v, want the last 3, since the load before served nobody", l)
	}
}

// strictRaces checks that the range of a strict load lies above all ranges that were loaded before the load last called
// join.
func (s *suite) strictRaces() {
	s.createStrict()
	s.loadStrict(1)
	var highest atomic.Int64 // end that a load has returned
	var loaders sync.WaitGroup
	for range 4 {
		store := s.next()
		loaders.Go(func() {
			for range 20 {
				var above int64
				join := func() int64 { above = highest.Load(); return 1 + rand.Int64N(20) }
				l, err := store.LoadStrict(s.ctx, "order", join, 0)
				if err != nil || l.Start < above {
					s.Errorf("loaded %v, %v, when %d had been reached before", l, err, above)
					return
				}
				for old := highest.Load(); old < l.End && !highest.CompareAndSwap(old, l.End); old = highest.Load() {
				}
			}
		})
	}
	loaders.Wait()
}
