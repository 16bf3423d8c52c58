package kvstore_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// put writes the identity of a bucket.
func put(t *testing.T, streams buckets.Streams, bucket string, id era.Identity) {
	t.Helper()
	if _, err := streams.Publish(t.Context(), bucket, era.Key, buckets.Write{Value: id.Encode()}); err != nil {
		t.Fatal(err)
	}
}

// identity reads the identity of a bucket.
func identity(t *testing.T, streams buckets.Streams, bucket string) era.Identity {
	t.Helper()
	kve, err := streams.Last(t.Context(), bucket, era.Key)
	id, unread := era.Decode(kve.Value)
	if err = errors.Join(err, unread); err != nil {
		t.Fatal(err)
	}
	return id
}

// resume begins an era in which marks are higher by so much, and returns it.
func resume(t *testing.T, streams buckets.Streams, bucket string, by int64) string {
	t.Helper()
	id, err := identity(t, streams, bucket).Resume(by, 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	put(t, streams, bucket, id)
	return id.Era
}

// written is an entry as it is written.
type written struct {
	Mark, Least int64
	Era         string
	Disabled    bool
	Rules       segment.Rules
}

func (m *memory) written(tag string) (w written) {
	_ = json.Unmarshal(m.entry(tag).Value, &w)
	return w
}

// plain is the tag that most tests of eras have.
var plain = segment.Tag{Name: "a", Step: 10, MaxID: 101}

// bothKinds runs a test with a store of marks alone, and with one that guards a table.
func bothKinds(t *testing.T, test func(*testing.T, *kvstore.Store, *memory)) {
	t.Run("alone", func(t *testing.T) {
		marks := new(memory)
		test(t, kvstore.New(marks, kvstore.Config{Bucket: "marks"}), marks)
	})
	t.Run("guarded", func(t *testing.T) {
		marks := new(memory)
		test(t, beside(new(segmenttest.Table), marks), marks)
	})
}

func TestWhoeverWritesAnEntryWritesItsMarkInThePresentEra(t *testing.T) {
	text := "changed"
	update := func(c segment.Change) func(*testing.T, *kvstore.Store) error {
		return func(t *testing.T, s *kvstore.Store) error {
			_, err := s.Update(t.Context(), "a", c)
			return err
		}
	}
	for name, test := range map[string]struct {
		write func(*testing.T, *kvstore.Store) error
		want  int64
	}{
		"a load": {want: 1111, write: func(t *testing.T, s *kvstore.Store) error {
			l, err := s.Load(t.Context(), "a", 0, 0)
			if l.Start != 1101 {
				t.Errorf("loaded %v, want it from 1101", l)
			}
			return err
		}},
		"a strict load": {want: 1108, write: func(t *testing.T, s *kvstore.Store) error {
			_, err := s.LoadStrict(t.Context(), "a", func() int64 { return 7 }, 0)
			return err
		}},
		"a step": {update(segment.Change{Step: 20}), 1101},
		"a text": {update(segment.Change{Description: &text}), 1101},
		"rules": {
			update(segment.Change{Rules: func(r segment.Rules) segment.Rules { r.MaxHole = 9; return r }}), 1101,
		},
		"a raise":    {update(segment.Change{MaxID: 5000}), 5000},
		"a raise by": {update(segment.Change{RaiseBy: 100}), 1201},
		"a deletion": {want: 1101, write: func(t *testing.T, s *kvstore.Store) error {
			return s.Delete(t.Context(), "a")
		}},
		"a new life": {want: 1101, write: func(t *testing.T, s *kvstore.Store) error {
			err := s.Delete(t.Context(), "a")
			_, made := s.Create(t.Context(), segment.Tag{Name: "a", Step: 10}, true)
			return errors.Join(err, made)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, func(t *testing.T, s *kvstore.Store, marks *memory) {
				create(t, s, plain)
				present := resume(t, marks, "marks", 1000)
				got, err := s.Look(t.Context(), "a")
				if err != nil || got.MaxID != 1101 || marks.mark("a").Mark != 101 {
					t.Errorf("read as %+v, %v, want 1101; written is %+v", got, err, marks.mark("a"))
				}
				if err := test.write(t, s); err != nil {
					t.Fatal(err)
				}
				if got := marks.written("a"); got.Mark != test.want || got.Era != present {
					t.Errorf("written is %+v, want mark %d of era %s", got, test.want, present)
				}
				resume(t, marks, "marks", 1000)
				if got, err := s.Look(t.Context(), "a"); err != nil || got.MaxID != test.want+1000 {
					t.Errorf("after another resume it is %+v, %v, want %d", got, err, test.want+1000)
				}
			})
		})
	}
}

func TestAPollWritesMarksOfThePresentEraAndLiftsTheirRows(t *testing.T) {
	g, table, marks := guarded(t, nil)
	table.LoadAsLeaf("a") // [1,101)
	present := resume(t, marks, "marks", 1000)
	for range 2 {
		if err := g.Poll(t.Context(), func(segment.Listing) {}); err != nil {
			t.Fatal(err)
		}
	}
	if got := marks.written("a"); got.Mark != 1001 || got.Era != present || table.Snapshot()["a"].MaxID != 1001 {
		t.Errorf("written is %+v, the row %+v, want 1001 of era %s", got, table.Snapshot()["a"], present)
	}
	resume(t, marks, "marks", 1000)
	if r := load(t, g); r.Start != 2001 {
		t.Errorf("loaded %v, want it from 2001", r)
	}
}

func TestAnEntryOfAnEraThatIsNotKnownIsNotUsed(t *testing.T) {
	bothKinds(t, func(t *testing.T, s *kvstore.Store, marks *memory) {
		create(t, s, plain)
		id := identity(t, marks, "marks")
		id.Era, id.Offsets = "another", nil
		put(t, marks, "marks", id)
		before := marks.entry("a").Revision
		_, loaded := s.Load(t.Context(), "a", 0, 0)
		_, updated := s.Update(t.Context(), "a", segment.Change{MaxID: 5000})
		unknown := new(*era.UnknownError)
		if !errors.As(loaded, unknown) || !errors.As(updated, unknown) ||
			!errors.As(s.Delete(t.Context(), "a"), unknown) || marks.entry("a").Revision != before {
			t.Errorf("loaded: %v, updated: %v", loaded, updated)
		}
	})
}

func TestABoundedTagOfAnEarlierEraIsDecidedByItsOperatorAlone(t *testing.T) {
	bothKinds(t, func(t *testing.T, s *kvstore.Store, marks *memory) {
		create(t, s, segment.Tag{Name: "a", Step: 10, MaxID: 101, Rules: segment.Rules{Max: 50_000}})
		made := marks.written("a").Era
		present := resume(t, marks, "marks", 1000)
		text := "changed"
		other := func(r segment.Rules) segment.Rules {
			r.Max = 60_000
			return r
		}
		for _, c := range []segment.Change{{}, {Step: 20, Description: &text}, {Rules: other}} {
			if got, err := s.Update(t.Context(), "a", c); err != nil || !got.Undecided {
				t.Errorf("changed by %+v it is %+v, %v, want it undecided", c, got, err)
			}
			if err := s.Poll(t.Context(), func(segment.Listing) {}); err != nil {
				t.Error(err)
			}
			if got := marks.written("a"); got.Mark != 101 || got.Era != made {
				t.Errorf("written is %+v, want the mark and the era that it had", got)
			}
		}
		if _, err := s.Load(t.Context(), "a", 0, 300); !errors.Is(err, segment.ErrUndecided) {
			t.Errorf("loaded: %v, want ErrUndecided", err)
		}
		all, err := s.List(t.Context(), "", 10)
		if err != nil || len(all) != 1 || !all[0].Undecided || all[0].MaxID != 101 {
			t.Errorf("listed as %+v, %v", all, err)
		}
		decide := func(by segment.Change) error {
			_, err := s.Update(t.Context(), "a", by)
			return err
		}
		for _, c := range []segment.Change{{MaxID: 100}, {RaiseBy: 10}, {MaxID: 70_000}} {
			if err := decide(c); !errors.Is(err, segment.ErrInvalid) {
				t.Errorf("decided by %+v: %v, want ErrInvalid", c, err)
			}
		}
		sound, stopped := identity(t, marks, "marks"), identity(t, marks, "marks")
		stopped.Incident = &era.Incident{ID: "I", Cause: era.WentBack}
		put(t, marks, "marks", stopped)
		if err := decide(segment.Change{MaxID: 101}); !errors.Is(err, segment.ErrInvalid) {
			t.Errorf("decided while an incident is open: %v", err)
		}
		put(t, marks, "marks", sound)
		if err := decide(segment.Change{MaxID: 101}); err != nil {
			t.Error(err)
		}
		if got := marks.written("a"); got.Mark != 101 || got.Least != 101 || got.Era != present {
			t.Errorf("decided it is %+v, want mark 101 of era %s", got, present)
		}
		if l, err := s.Load(t.Context(), "a", 0, 0); err != nil || l.Start != 101 {
			t.Errorf("%v, %v, want it loaded from 101", l, err)
		}
		// Once more, at the mark that it was decided to have before.
		resume(t, marks, "marks", 1000)
		if got, err := s.Look(t.Context(), "a"); err != nil || !got.Undecided {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestNoDeletedTagIsDecidedWhileAnIncidentIsOpen(t *testing.T) {
	bothKinds(t, func(t *testing.T, s *kvstore.Store, marks *memory) {
		tag := segment.Tag{Name: "a", Step: 10, MaxID: 101, Rules: segment.Rules{Max: 50_000}}
		create(t, s, tag)
		if err := s.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		resume(t, marks, "marks", 1000)
		sound, stopped := identity(t, marks, "marks"), identity(t, marks, "marks")
		stopped.Incident = &era.Incident{ID: "I", Cause: era.WentBack}
		put(t, marks, "marks", stopped)
		if got, err := s.Create(t.Context(), tag, true); !errors.Is(err, segment.ErrInvalid) {
			t.Errorf("%+v, %v, want ErrInvalid", got, err)
		}
		put(t, marks, "marks", sound)
		if got, err := s.Create(t.Context(), tag, true); err != nil || got.Undecided {
			t.Errorf("%+v, %v, want it decided", got, err)
		}
	})
}

func TestATagThatWasDecidedAndNotLoadedIsDecidedAgainAtItsLeastID(t *testing.T) {
	bothKinds(t, func(t *testing.T, s *kvstore.Store, marks *memory) {
		create(t, s, segment.Tag{Name: "a", Step: 10, MaxID: 101, Rules: segment.Rules{Max: 50_000}})
		for range 2 {
			present := resume(t, marks, "marks", 1000)
			got, err := s.Update(t.Context(), "a", segment.Change{MaxID: 101})
			if err != nil || got.Undecided || marks.written("a").Era != present {
				t.Errorf("%+v, %v, want it decided", got, err)
			}
		}
	})
}

// A daily tag that was last loaded on an earlier day may have been loaded today in the history that was lost.
func TestADailyTagOfAnEarlierDayIsDecidedIntoThePresentOne(t *testing.T) {
	daily, marks := segment.Rules{Period: segment.Daily}, new(memory)
	s := kvstore.New(marks, kvstore.Config{Bucket: "marks"})
	create(t, s, segment.Tag{Name: "a", Step: 10, MaxID: daily.Begins(time.Now().AddDate(0, 0, -3)), Rules: daily})
	resume(t, marks, "marks", 1000)
	if _, err := s.Load(t.Context(), "a", 0, 0); !errors.Is(err, segment.ErrUndecided) {
		t.Errorf("%v, want ErrUndecided", err)
	}
	got, err := s.Update(t.Context(), "a", segment.Change{MaxID: daily.Begins(time.Now()) + 900})
	if err != nil || got.Undecided {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestATagWhoseColumnTheOffsetWouldPassIsUndecided(t *testing.T) {
	table, marks := new(small), new(memory)
	s := beside(table, marks)
	create(t, s, segment.Tag{Name: "a", Step: 10, MaxID: 1})
	backup := table.Snapshot()
	load(t, s)
	table.Restore(backup)
	resume(t, marks, "marks", table.Limit()-5)
	if err := s.Poll(t.Context(), func(segment.Listing) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context(), "a", 0, 0); !errors.Is(err, segment.ErrUndecided) ||
		table.Snapshot()["a"].MaxID != 1 {
		t.Errorf("%v, want ErrUndecided; the row is %+v", err, table.Snapshot()["a"])
	}
	if _, err := s.Update(t.Context(), "a", segment.Change{MaxID: 2000}); err != nil {
		t.Error(err)
	}
	if r := load(t, s); r.Start != 2000 {
		t.Errorf("loaded %v, want it from 2000", r)
	}
	resume(t, marks, "marks", table.Limit())
	for isRevive, want := range map[bool]error{false: segment.ErrUndecided, true: segment.ErrInvalid} {
		if got, err := s.Create(t.Context(), segment.Tag{Name: "b", Step: 10}, isRevive); !errors.Is(err, want) {
			t.Errorf("%+v, %v, want %v", got, err, want)
		}
	}
}

func TestANewTagBeginsAboveTheOffsetOrWhereItIsTold(t *testing.T) {
	bothKinds(t, func(t *testing.T, s *kvstore.Store, marks *memory) {
		create(t, s, plain)
		resume(t, marks, "marks", 1000)
		for name, c := range map[string]struct {
			start, want int64
			isRevive    bool
		}{
			"b": {0, 1001, true}, "c": {0, 1001, false}, "d": {1, 1, true}, "e": {700, 700, true},
			"f": {5000, 5000, true},
		} {
			got, err := s.Create(t.Context(), segment.Tag{Name: name, Step: 10, MaxID: c.start}, c.isRevive)
			l, loaded := s.Load(t.Context(), name, 0, 0)
			if err != nil || loaded != nil || got.MaxID != c.want || l.Start != c.want {
				t.Errorf("started at %d: %+v, %v, loaded %v, %v, want %d", c.start, got, err, l, loaded, c.want)
			}
		}
		bounded := segment.Tag{Name: "g", Step: 10, Rules: segment.Rules{Max: 50}}
		if got, err := s.Create(t.Context(), bounded, true); !errors.Is(err, segment.ErrInvalid) {
			t.Errorf("%+v, %v, want that a start is demanded", got, err)
		}
		bounded.MaxID = 1
		if _, err := s.Create(t.Context(), bounded, true); err != nil {
			t.Error(err)
		}
		if l, err := s.Load(t.Context(), "g", 0, 0); err != nil || l.Start != 1 {
			t.Errorf("%v, %v", l, err)
		}
	})
}
