// Package segmenttest holds the conformance tests of every [segment.Store], and stores and tables in memory for tests,
// which fail on demand; it is internal to natsid and may change.
package segmenttest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/natsid/natsid/segment"
)

// Run runs the conformance suite. open is called once per subtest and opens an empty place for marks. The function that
// it returns opens stores that share this place, as the processes of a deployment do.
func Run(t *testing.T, open func(t *testing.T) (next func() segment.Store)) {
	for name, test := range map[string]func(*suite){
		"FirstRangeIsLeafs":                (*suite).firstRange,
		"ConcurrentLoadsAreDisjoint":       (*suite).concurrentLoads,
		"AbortedLoadsLeaveHolesNotRepeats": (*suite).abortedLoads,
		"UnknownTag":                       (*suite).unknownTag,
		"LoadIsNeverUnderTheFloor":         (*suite).floor,
		"LoadLargerThanTheStepFits":        (*suite).largeLoad,
		"EveryIDUpToTheEndIsLoaded":        (*suite).int64End,
		"RevivedTagContinuesAbove":         (*suite).revive,
		"CreateOnceOnly":                   (*suite).createOnce,
		"CreateWithoutStartBeginsAtOne":    (*suite).createWithoutStart,
		"ConcurrentCreatesAgree":           (*suite).concurrentCreates,
		"ConcurrentRevivesAgree":           (*suite).concurrentRevives,
		"InvalidTagsAreRefused":            (*suite).invalid,
		"ListPagesInOrder":                 (*suite).list,
		"UpdateChangesWhatItNames":         (*suite).updateParts,
		"UpdateNeverLowersAndSaysWhy":      (*suite).updateRefused,
		"LoadsBesideRaisesRepeatNothing":   (*suite).updateRaces,
		"PollAndLookShowTagsAsTheyAre":     (*suite).poll,
		"TheOrderOfATagStays":              (*suite).strictTags,
		"StrictLoadsReserveWhatJoined":     (*suite).strictLoads,
		"StrictLoadsOnlyRise":              (*suite).strictRaces,
		"RulesBoundLoads":                  (*suite).rules,
		"RulesHoldFromTheFirstLoad":        (*suite).concurrentRules,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			next := open(t)
			test(&suite{T: t, ctx: ctx, next: next, Store: next()})
		})
	}
}

type suite struct {
	*testing.T
	segment.Store
	ctx  context.Context
	next func() segment.Store
}

func (s *suite) create(tag string, step, start int64) {
	s.Helper()
	got, err := s.Create(s.ctx, segment.Tag{Name: tag, Step: step, MaxID: start, Description: "of " + tag}, false)
	if err != nil || got.Name != tag || got.Step != step || got.MaxID != start {
		s.Fatalf("Create(%s) = %+v, %v", tag, got, err)
	}
}

func (s *suite) load(tag string, n, floor int64) segment.Range {
	s.Helper()
	r, err := s.Load(s.ctx, tag, n, floor)
	if err != nil {
		s.Fatalf("Load(%s, %d, %d): %v", tag, n, floor, err)
	}
	return r.Range
}

func (s *suite) wantErr(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("error %v, want %v", err, want)
	}
}

func (s *suite) firstRange() {
	s.create("order", 1000, 1)
	for _, want := range []segment.Range{{Start: 1, End: 1001}, {Start: 1001, End: 2001}} {
		if got := s.load("order", 0, 0); got != want {
			s.Errorf("range %v, want %v", got, want)
		}
	}
	tags, err := s.List(s.ctx, "", 10)
	if err != nil || len(tags) != 1 || tags[0].MaxID != 2001 || tags[0].Description != "of order" ||
		time.Since(tags[0].Updated) > time.Minute {
		s.Errorf("List = %+v, %v, want max_id 2001 of order, updated now", tags, err)
	}
}

func (s *suite) concurrentLoads() {
	s.create("order", 10, 1)
	const loaders, loads = 8, 40
	ranges := make([][]segment.Range, loaders)
	var wg sync.WaitGroup
	for i := range loaders {
		store := s.next()
		wg.Go(func() {
			for range loads {
				r, err := store.Load(s.ctx, "order", rand.Int64N(20), 0)
				if err != nil {
					s.Errorf("Load: %v", err)
					return
				}
				ranges[i] = append(ranges[i], r.Range)
			}
		})
	}
	wg.Wait()
	if all := slices.Concat(ranges...); s.disjoint(all) && len(all) != loaders*loads {
		s.Errorf("%d ranges, want %d", len(all), loaders*loads)
	}
}

// disjoint checks that no two ranges share an ID.
func (s *suite) disjoint(ranges []segment.Range) bool {
	s.Helper()
	slices.SortFunc(ranges, func(a, b segment.Range) int { return int(a.Start - b.Start) })
	for i := range ranges {
		if ranges[i].Len() < 1 || i > 0 && ranges[i].Start < ranges[i-1].End {
			s.Errorf("ranges %v and %v overlap or are empty", ranges[max(i-1, 0)], ranges[i])
			return false
		}
	}
	return true
}

func (s *suite) abortedLoads() {
	s.create("order", 10, 1)
	var ranges []segment.Range
	aborted := 0
	for i := range 300 {
		ctx, cancel := context.WithTimeout(s.ctx, time.Duration(rand.Int64N(int64(400*time.Microsecond))))
		r, err := s.Load(ctx, "order", 0, 0)
		cancel()
		if err != nil {
			aborted++
		} else {
			ranges = append(ranges, r.Range)
		}
		if i%10 == 0 {
			ranges = append(ranges, s.load("order", 0, 0))
		}
	}
	s.disjoint(ranges)
	s.Logf("%d loads were aborted, %d were not", aborted, len(ranges))
}

func (s *suite) unknownTag() {
	_, err := s.Load(s.ctx, "unknown", 1, 0)
	s.wantErr(err, segment.ErrUnknownTag)
	if errors.Is(err, segment.ErrDisabled) {
		s.Error("a tag that never existed is reported as disabled")
	}
	s.wantErr(s.Delete(s.ctx, "unknown"), segment.ErrUnknownTag)
	if tags, err := s.List(s.ctx, "", 10); err != nil || len(tags) != 0 {
		s.Errorf("List = %v, %v, want none: a load creates no tag", tags, err)
	}
}

func (s *suite) floor() {
	s.create("order", 10, 1)
	s.load("order", 0, 0)
	if l, err := s.Load(s.ctx, "order", 0, 5000); err == nil && l.Start < 5000 { // or the store says that it went back
		s.Errorf("range %v, want it from 5000", l)
	}
	if got := s.load("order", 0, 3); got.Start < 11 {
		s.Errorf("a floor below the mark: %v, want it to continue from 11", got)
	}
}

func (s *suite) largeLoad() {
	s.create("order", 10, 1)
	if got, want := s.load("order", 25, 0), (segment.Range{Start: 1, End: 26}); got != want {
		s.Errorf("range %v, want %v", got, want)
	}
	if got := s.load("order", 3, 0); got.Len() != 10 {
		s.Errorf("a load of 3 with step 10: %v, want a whole step", got)
	}
	for _, n := range []int64{0, 25} {
		if l, err := s.Load(s.ctx, "order", n, 0); err != nil || l.Step != 10 {
			s.Errorf("a load of %d returns step %d, %v, want the tag's own, 10", n, l.Step, err)
		}
	}
}

func (s *suite) int64End() {
	s.create("order", 10, math.MaxInt64-15)
	for _, want := range []segment.Range{
		{Start: math.MaxInt64 - 15, End: math.MaxInt64 - 5}, {Start: math.MaxInt64 - 5, End: math.MaxInt64},
	} {
		if got := s.load("order", 0, 0); got != want {
			s.Errorf("%v, want %v: a step gives way where the IDs end", got, want)
		}
	}
	for range 2 {
		_, err := s.Load(s.ctx, "order", 0, 0)
		s.wantErr(err, segment.ErrExhausted)
	}
	_, err := s.Load(s.ctx, "order", math.MaxInt64, 1)
	s.wantErr(err, segment.ErrExhausted)
	s.create("large", 10, math.MaxInt64-15)
	if got := s.load("large", 1000, 0); got.Len() != 15 {
		s.Errorf("a load of 1000 where 15 are left: %v", got)
	}
}

func (s *suite) revive() {
	s.create("order", 10, 1)
	last := s.load("order", 0, 0)
	if err := s.Delete(s.ctx, "order"); err != nil {
		s.Fatal(err)
	}
	_, err := s.Load(s.ctx, "order", 0, 0)
	s.wantErr(err, segment.ErrDisabled)
	s.wantErr(err, segment.ErrUnknownTag)
	if tags, _ := s.List(s.ctx, "", 10); len(tags) != 1 || !tags[0].Disabled || tags[0].MaxID != last.End {
		s.Errorf("List = %+v, want it disabled, with its mark", tags)
	}
	again := segment.Tag{Name: "order", Step: 20, MaxID: 1}
	_, err = s.Create(s.ctx, again, false)
	s.wantErr(err, segment.ErrDisabled)
	if got, err := s.Create(s.ctx, again, true); err != nil || got.MaxID != last.End || got.Least != last.End ||
		got.Step != 20 || got.Disabled {
		s.Errorf("revived: %+v, %v, want step 20 above %d", got, err, last.End)
	}
	if got := s.load("order", 0, 0); got.Start != last.End || got.Len() != 20 {
		s.Errorf("loaded %v, want 20 from %d", got, last.End)
	}
}

func (s *suite) createWithoutStart() {
	for name, rules := range map[string]segment.Rules{
		"plain": {}, "bounded": {Max: 50}, "daily": {Period: segment.Daily},
	} {
		for _, revive := range []bool{false, true} {
			tag := segment.Tag{Name: fmt.Sprint(name, revive), Step: 10, Rules: rules}
			first := max(1, rules.Begins(time.Now()))
			got, err := s.Create(s.ctx, tag, revive)
			if l := s.load(tag.Name, 0, 0); err != nil || got.MaxID != 1 || l.Start != first {
				s.Errorf("%s: %+v, %v, and loaded %v, want it from %d", tag.Name, got, err, l, first)
			}
		}
	}
}

func (s *suite) createOnce() {
	s.create("order", 10, 1)
	for _, revive := range []bool{false, true} {
		_, err := s.Create(s.ctx, segment.Tag{Name: "order", Step: 99, MaxID: 99}, revive)
		s.wantErr(err, segment.ErrExists)
	}
	if got := s.load("order", 0, 0); got.Start != 1 || got.Len() != 10 {
		s.Errorf("loaded %v, want the range of the first Create", got)
	}
}

func (s *suite) concurrentCreates() {
	const creators = 8
	errs := make([]error, creators)
	var wg sync.WaitGroup
	for i := range creators {
		store := s.next()
		wg.Go(func() {
			_, errs[i] = store.Create(s.ctx, segment.Tag{Name: "order", Step: 10, MaxID: 1}, i%2 == 0)
		})
	}
	wg.Wait()
	created := 0
	for _, err := range errs {
		if err == nil {
			created++
		} else {
			s.wantErr(err, segment.ErrExists)
		}
	}
	if created != 1 {
		s.Errorf("%d of %d created the tag, want one", created, creators)
	}
}

// concurrentRevives lets many revive a tag at once: one of them succeeds, and the tag gets its step.
func (s *suite) concurrentRevives() {
	s.create("order", 10, 1)
	for range 10 {
		if err := s.Delete(s.ctx, "order"); err != nil {
			s.Fatal(err)
		}
		revived := make([]segment.Tag, 8)
		var wg sync.WaitGroup
		for i := range revived {
			store := s.next()
			wg.Go(func() {
				var err error
				wish := segment.Tag{Name: "order", Step: int64(i + 1), MaxID: 1}
				if revived[i], err = store.Create(s.ctx, wish, true); err != nil {
					s.wantErr(err, segment.ErrExists)
					revived[i] = segment.Tag{}
				}
			})
		}
		wg.Wait()
		revived = slices.DeleteFunc(revived, func(t segment.Tag) bool { return t.Name == "" })
		if got := s.look("order"); len(revived) != 1 || got.Step != revived[0].Step {
			s.Errorf("the tag is %+v, and was revived as %+v", got, revived)
		}
	}
	if err := s.Delete(s.ctx, "order"); err != nil {
		s.Fatal(err)
	}
	_, err := s.Create(s.ctx, segment.Tag{Name: "order", Step: 10, MaxID: 2 + segment.MaxRaise}, true)
	s.wantErr(err, segment.ErrInvalid)
}

func (s *suite) invalid() {
	for _, t := range []segment.Tag{
		{Name: "t", Step: 0, MaxID: 1}, {Name: "t", Step: -5, MaxID: 1},
		{Name: "t", Step: segment.MaxStep + 1, MaxID: 1},
		{Name: "t", Step: 1, MaxID: -7},
	} {
		_, err := s.Create(s.ctx, t, true)
		s.wantErr(err, segment.ErrInvalid)
	}
}

func (s *suite) list() {
	names := []string{"B", "a", "a.b", "a/b=c", "b-c_d", strings.Repeat("z", 128)}
	for _, name := range names {
		s.create(name, 10, 1)
	}
	slices.Sort(names)
	var got []string
	for after := ""; ; {
		page, err := s.List(s.ctx, after, 4)
		if err != nil || len(page) > 4 {
			s.Fatalf("List(%q) = %v, %v", after, page, err)
		}
		if len(page) == 0 {
			break
		}
		for _, t := range page {
			got = append(got, t.Name)
			after = t.Name
		}
	}
	if !slices.Equal(got, names) {
		s.Errorf("listed %q, want %q", got, names)
	}
}
