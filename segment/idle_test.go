package segment_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// manyIdle has three idle tags where one may stay in memory.
func manyIdle(t *testing.T, cfg segment.Config, f func(t *testing.T, a *allocator, store *faulty, memory *memory)) {
	cfg.AutoStep = 100
	if cfg.MaxIdle == 0 {
		cfg.MaxIdle = 1
	}
	followed(t, cfg, func(t *testing.T, a *allocator, store *faulty, memory *memory) {
		for _, tag := range []string{"a", "b", "new"} {
			take(t, a, tag, 1)
		}
		synctest.Wait()
		f(t, a, store, memory)
	})
}

func tagsInMemory(a *allocator) (tags []string) {
	_, all := a.Busiest(100)
	for _, s := range all {
		tags = append(tags, s.Tag)
	}
	slices.Sort(tags)
	return tags
}

func TestIdleTagsLeaveTheMemoryWhereThereAreMany(t *testing.T) {
	manyIdle(t, segment.Config{MaxIdle: -1}, func(t *testing.T, a *allocator, _ *faulty, _ *memory) {
		for id := int64(2); id < 30; id++ {
			if got := take(t, a, "b", 1)[0].Start; got != id {
				t.Fatalf("b goes on with %d, want %d: it is in use", got, id)
			}
			time.Sleep(10 * time.Minute)
		}
		if got := fmt.Sprint(tagsInMemory(a)); got != "[b]" {
			t.Fatalf("in memory: %s, want the tag that is in use", got)
		}
		if got := take(t, a, "new", 1)[0].Start; got != 101 {
			t.Errorf("new goes on with %d, want 101: what was loaded is a hole", got)
		}
	})
}

func TestTagsAreNotIdleBeforeAnHour(t *testing.T) {
	manyIdle(t, segment.Config{}, func(t *testing.T, a *allocator, _ *faulty, _ *memory) {
		time.Sleep(59 * time.Minute)
		if got := tagsInMemory(a); len(got) != 3 {
			t.Errorf("in memory: %v, want all", got)
		}
	})
}

func TestFewIdleTagsStayInMemory(t *testing.T) {
	followed(t, segment.Config{}, func(t *testing.T, a *allocator, _ *faulty, _ *memory) {
		take(t, a, "a", 1)
		time.Sleep(10 * time.Hour)
		if _, ok := a.StatsOf("a"); !ok {
			t.Error("the only tag is gone")
		}
	})
}

func TestIdleTagsStayInMemoryWhileLoadsAreHeld(t *testing.T) {
	manyIdle(t, segment.Config{}, func(t *testing.T, a *allocator, _ *faulty, _ *memory) {
		a.Hold(errors.New("held"))
		time.Sleep(2 * time.Hour)
		if got := tagsInMemory(a); len(got) != 3 {
			t.Errorf("in memory: %v, want all", got)
		}
	})
}

// A store that lost its tags must not give the loaded IDs a second time.
func TestAnIdleTagThatLostItsMarkIsNotCreatedOnFirstUse(t *testing.T) {
	manyIdle(t, segment.Config{MaxIdle: -1}, func(t *testing.T, a *allocator, _ *faulty, memory *memory) {
		time.Sleep(2 * time.Hour)
		floors := a.Floors()
		for _, tag := range []string{"a", "b", "new"} {
			want := segment.Floor{End: 101, Step: 100, Live: true, Rules: floors[tag].Rules}
			if floors[tag] != want || want.Rules == nil || *want.Rules != (segment.Rules{}) {
				t.Errorf("floor of %s %+v, want %+v and no rules", tag, floors[tag], want)
			}
		}
		for _, tag := range []string{"a", "b", "new"} {
			memory.Remove(tag)
		}
		for _, tag := range []string{"a", "b", "new"} {
			if _, err := segmenttest.Take(t.Context(), a, tag, 1); !errors.Is(err, segment.ErrUnknownTag) {
				t.Errorf("%s: %v, want ErrUnknownTag", tag, err)
			}
		}
	})
}

func TestATagThatTheStoreLostStaysInMemory(t *testing.T) {
	manyIdle(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty, _ *memory) {
		store.OnPoll(func(_ context.Context, see func(segment.Listing), _ func(func(segment.Listing)) error) error {
			see(segment.Listing{Removed: func(string) bool { return false }})
			return nil
		})
		time.Sleep(2 * time.Hour)
		if got := tagsInMemory(a); len(got) != 3 {
			t.Errorf("in memory: %v, want all: what was loaded of them remains valid", got)
		}
	})
}

func TestAnIdleTagThatIsDeletedIsNotBroughtBack(t *testing.T) {
	for name, learns := range map[string]func(a *allocator){
		"by a poll": func(*allocator) { time.Sleep(61 * time.Second) },
		"by news":   func(a *allocator) { a.See(segment.Tag{Name: "a", Step: 100, MaxID: 101, Disabled: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			manyIdle(t, segment.Config{MaxIdle: -1}, func(t *testing.T, a *allocator, _ *faulty, memory *memory) {
				time.Sleep(2 * time.Hour)
				if err := memory.Delete(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
				learns(a)
				if f := a.Floors()["a"]; f.Live || f.End != 101 {
					t.Errorf("floor %+v, want the end alone", f)
				}
			})
		})
	}
}
