package segment_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

func TestTagsAreCreatedOnFirstUseIfConfiguredButNotRevived(t *testing.T) {
	inBubble(t, segment.Config{AutoStep: 50}, func(t *testing.T, a *allocator, store *faulty) {
		if got := take(t, a, "new", 1)[0].Start; got != 1 {
			t.Errorf("first ID %d, want 1", got)
		}
		if err := store.Delete(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Take(t.Context(), "b", 1); !errors.Is(err, segment.ErrDisabled) {
			t.Errorf("a deleted tag: %v, want it to stay deleted", err)
		}
	})
}

func TestATagThatIsBeingCreatedIsNotUnknown(t *testing.T) {
	inBubble(t, segment.Config{AutoStep: 50}, func(t *testing.T, a *allocator, store *faulty) {
		create(t, store, segment.Tag{Name: "new", Step: 50, MaxID: 1})
		loads := 0
		store.OnLoad(func(_ context.Context, _ string, load loadFunc) (segment.Range, error) {
			if loads++; loads <= 2 {
				return segment.Range{}, segment.ErrUnknownTag // before it is created, and just after
			}
			return load()
		})
		if got := take(t, a, "new", 1)[0].Start; got != 1 {
			t.Errorf("first ID %d, want 1", got)
		}
	})
}

func TestATagThatLostItsMarkIsNotCreatedOnFirstUse(t *testing.T) {
	inBubble(t, segment.Config{AutoStep: 50}, func(t *testing.T, a *allocator, store *faulty) {
		take(t, a, "new", 1)
		synctest.Wait()
		store.Store = new(segmenttest.Memory)
		if _, err := a.Take(t.Context(), "new", 100); !errors.Is(err, segment.ErrUnknownTag) {
			t.Errorf("%v, want ErrUnknownTag: other allocators may have loaded more of it than this one", err)
		}
		if got := take(t, a, "another", 1)[0].Start; got != 1 {
			t.Errorf("a tag never seen begins with %d, want 1", got)
		}
	})
}
