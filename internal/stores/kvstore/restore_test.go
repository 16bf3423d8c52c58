package kvstore_test

import (
	"bytes"
	"testing"

	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// floor returns that of a live tag with a step of 20.
func floor(end int64, era string, rules ...segment.Rules) segment.Floor {
	return segment.Floor{End: end, Step: 20, Live: true, Rules: &append(rules, segment.Rules{})[0], Era: era}
}

func floors(tag string, f segment.Floor) map[string]segment.Floor {
	return map[string]segment.Floor{tag: f}
}

func restore(t *testing.T, s *kvstore.Store, f segment.Floor) {
	t.Helper()
	if err := s.Restore(t.Context(), floors("a", f)); err != nil {
		t.Fatal(err)
	}
}

func TestAMissingEntryIsWrittenInTheEraInWhichTheFloorWasLoaded(t *testing.T) {
	for name, rules := range map[string]segment.Rules{"plain": {}, "bounded": {Max: 50_000}} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, func(t *testing.T, s *kvstore.Store, marks *memory) {
				create(t, s, plain)
				made := marks.written("a").Era
				marks.lose("a")
				resume(t, marks, "marks", 1000)
				restore(t, s, floor(900, made, rules))
				if got := marks.written("a"); got.Mark != 900 || got.Era != made || got.Rules != rules || got.Disabled {
					t.Errorf("written is %+v, want 900 of era %s", got, made)
				}
				got, err := s.Look(t.Context(), "a")
				if err != nil || got.Undecided != rules.Bounded() || !got.Undecided && got.MaxID != 1900 {
					t.Errorf("%+v, %v", got, err)
				}
			})
		})
	}
}

// An entry stays as it was unless the tag is bounded, or was made on first use since by who did not know its rules.
func TestARestoreOfAnEntryThatIsThere(t *testing.T) {
	bounded, hole := segment.Rules{Max: 50_000}, segment.Rules{MaxHole: 9}
	for name, c := range map[string]struct {
		was     segment.Tag
		end     int64
		by      segment.Rules
		want    written // in the present era, or in that of the floor
		isFloor bool    // which it is
	}{
		"plain, and below the floor": {was: plain, end: 900, want: written{Mark: 101}},
		"bounded, and below the floor": {
			was: segment.Tag{Name: "a", Step: 10, MaxID: 101, Rules: bounded}, end: 900, by: bounded,
			want: written{Mark: 900, Rules: bounded},
		},
		"bounded, and above the floor": {
			was: segment.Tag{Name: "a", Step: 10, MaxID: 101, Rules: bounded}, end: 90, by: bounded,
			want: written{Mark: 101, Rules: bounded},
		},
		"of first use, with other rules": {
			was: segment.Tag{Name: "a", Step: 10}, end: 900, by: hole, want: written{Mark: 1, Least: 1, Rules: hole},
		},
		"of first use, and bounded": {
			was: segment.Tag{Name: "a", Step: 10}, end: 900, by: bounded, isFloor: true,
			want: written{Mark: 900, Rules: bounded},
		},
		"of first use, and plain": {was: segment.Tag{Name: "a", Step: 10}, end: 900, want: written{Mark: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, func(t *testing.T, s *kvstore.Store, marks *memory) {
				create(t, s, c.was)
				before := marks.written("a").Era
				if c.isFloor {
					before = "F"
				}
				restore(t, s, floor(c.end, "F", c.by))
				got := marks.written("a")
				if c.want.Least == 1 && got.Era != "" { // which was written, as the entry was read
					before = got.Era
				}
				if c.want.Era = before; got != c.want {
					t.Errorf("written is %+v, want %+v", got, c.want)
				}
			})
		})
	}
}

// A worker that was away knows the limits of before, and puts none of them over the entry.
func TestARestoreKeepsTheLimitsOfAnEntryThatIsThere(t *testing.T) {
	for name, now := range map[string]segment.Rules{"others": {Rate: 7}, "none": {}} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, func(t *testing.T, s *kvstore.Store, marks *memory) {
				create(t, s, segment.Tag{Name: "a", Step: 10, MaxID: 101, Rules: segment.Rules{Rate: 5}})
				update := segment.Change{Rules: func(segment.Rules) segment.Rules { return now }}
				if _, err := s.Update(t.Context(), "a", update); err != nil {
					t.Fatal(err)
				}
				before := marks.written("a")
				restore(t, s, floor(900, before.Era, segment.Rules{Rate: 5, MaxBatch: 3}))
				if got := marks.written("a"); got != before || got.Rules != now {
					t.Errorf("written is %+v, want %+v", got, before)
				}
			})
		})
	}
}

// The first who restores a tag that was made on first use since discards what was loaded of it without the rules.
func TestATagOfFirstUseGetsItsRulesOnce(t *testing.T) {
	bothKinds(t, func(t *testing.T, s *kvstore.Store, marks *memory) {
		if _, err := s.Create(t.Context(), segment.Tag{Name: "a", Step: 10}, false); err != nil {
			t.Fatal(err)
		}
		l := load(t, s)
		rules := segment.Rules{MaxHole: 9}
		restore(t, s, floor(5, "", rules))
		got := marks.written("a")
		if got.Least != l.End || got.Mark != l.End || got.Rules != rules {
			t.Errorf("written is %+v, want least and mark %d", got, l.End)
		}
		restore(t, s, floor(5, "", segment.Rules{MaxHole: 7}))
		if now := marks.written("a"); now != got {
			t.Errorf("then %+v", now)
		}
	})
}

func TestNeitherADeletedTagNorADeletedEntryIsRestored(t *testing.T) {
	bothKinds(t, func(t *testing.T, s *kvstore.Store, marks *memory) {
		create(t, s, segment.Tag{Name: "a", Step: 10, MaxID: 31, Rules: segment.Rules{Max: 50}})
		if err := s.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"tag", "entry"} {
			before := marks.entry("a")
			restore(t, s, floor(900, "F", segment.Rules{Max: 50}))
			if marks.entry("a").Revision != before.Revision {
				t.Errorf("of a deleted %s, %+v is written", what, marks.written("a"))
			}
			marks.remove("a")
		}
	})
}

func TestALowMarkIsConfirmedByAWriteThatChangesNothing(t *testing.T) {
	bothKinds(t, func(t *testing.T, s *kvstore.Store, marks *memory) {
		create(t, s, plain)
		create(t, s, segment.Tag{Name: "b", Step: 10, MaxID: 1})
		create(t, s, segment.Tag{Name: "bounded", Step: 10, MaxID: 1, Rules: segment.Rules{Max: 5000}})
		load(t, s)
		resume(t, marks, "marks", 1000)
		before := marks.entry("a")
		need, why, err := s.Low(t.Context(), map[string]segment.Floor{
			"a": {End: 1911}, "b": {End: 1002}, "bounded": {End: 4000}, "missing": {End: 9000},
		})
		after := marks.entry("a")
		isSame := bytes.Equal(before.Value, after.Value) && after.Revision > before.Revision
		if want := "a at 1111, loaded up to 1911; b at 1001, loaded up to 1002"; err != nil || need != 800 ||
			why != want || !isSame {
			t.Errorf("low by %d, %q, %v, and written is %s, was %s", need, why, err, after.Value, before.Value)
		}
		if need, why, err := s.Low(t.Context(), floors("a", segment.Floor{End: 1111})); need != 0 || err != nil {
			t.Errorf("low by %d, %q, %v, want that none is", need, why, err)
		}
	})
}

// Where another write came first, the entry that was read proves nothing.
func TestALowMarkThatIsOvertakenProvesNothing(t *testing.T) {
	marks := new(memory)
	create(t, kvstore.New(marks, kvstore.Config{Bucket: "marks"}), plain)
	shows := 0
	s := kvstore.New(&view{Streams: marks, before: func() { marks.touch("a") }}, kvstore.Config{
		Bucket: "marks", WentBack: func(string, int64) { shows++ },
	})
	if l, err := s.Load(t.Context(), "a", 0, 50); err != nil || l.Start != 101 || shows > 0 {
		t.Errorf("%v, %v, shown %d times", l, err, shows)
	}
	s = kvstore.New(&view{Streams: marks, before: func() { marks.touch("a") }}, kvstore.Config{Bucket: "marks"})
	if need, why, err := s.Low(t.Context(), floors("a", segment.Floor{End: 500})); err == nil {
		t.Errorf("low by %d, %q: confirmed an entry that another write had replaced", need, why)
	}
}

func TestALoadBelowTheFloorShowsHowFarTheBucketWentBackAndChangesNothing(t *testing.T) {
	for _, table := range []segment.Table{nil, new(segmenttest.Table)} {
		marks, why, need := new(memory), "", int64(0)
		s := kvstore.New(marks, kvstore.Config{
			Bucket: "marks", Table: table, WentBack: func(w string, n int64) { why, need = w, n },
		})
		create(t, s, segment.Tag{Name: "a", Step: 10, MaxID: 1})
		for _, known := range []int64{0, 11} {
			if _, err := s.Load(t.Context(), "a", 0, known); err != nil || why != "" {
				t.Fatalf("%v, shown %q: nothing went back", err, why)
			}
		}
		before := marks.entry("a")
		l, err := s.Load(t.Context(), "a", 0, 500)
		after := marks.entry("a")
		if err == nil || need != 479 || why != "the mark of tag a was 21, and this worker had loaded up to 500" ||
			!bytes.Equal(before.Value, after.Value) || after.Revision <= before.Revision {
			t.Errorf("loaded %v, %v, shown %q, %d; written is %s, was %s", l, err, why, need, after.Value, before.Value)
		}
		why = ""
		create(t, s, segment.Tag{Name: "b", Step: 10, MaxID: 1, Rules: segment.Rules{Max: 50_000}})
		if l, err := s.Load(t.Context(), "b", 0, 500); err != nil || l.Start != 500 || why != "" {
			t.Errorf("a bounded tag: %v, %v, shown %q", l, err, why)
		}
	}
}
