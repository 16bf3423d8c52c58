package segment_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
		if _, err := segmenttest.Take(t.Context(), a, "b", 1); !errors.Is(err, segment.ErrDisabled) {
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
		if _, err := segmenttest.Take(t.Context(), a, "new", 100); !errors.Is(err, segment.ErrUnknownTag) {
			t.Errorf("%v, want ErrUnknownTag: other allocators may have loaded more of it than this one", err)
		}
		if got := take(t, a, "another", 1)[0].Start; got != 1 {
			t.Errorf("a tag never seen begins with %d, want 1", got)
		}
	})
}

func TestWhatARationRefusesIsNotMadeAndIsNoTroubleOfTheStore(t *testing.T) {
	const made = 3
	errTooFast := errors.New("too fast")
	var left atomic.Int64
	left.Store(made)
	cfg := segment.Config{AutoStep: 50, Ration: func() error {
		if left.Add(-1) < 0 {
			return errTooFast
		}
		return nil
	}}
	inBubble(t, cfg, func(t *testing.T, a *allocator, store *faulty) {
		for i := range 10 {
			_, err := segmenttest.Take(t.Context(), a, fmt.Sprintf("new%d", i), 1)
			if refused := errors.Is(err, segment.ErrRationed) && errors.Is(err, errTooFast); refused != (i >= made) {
				t.Errorf("tag %d: %v", i, err)
			}
		}
		if err := a.Trouble(); err != nil {
			t.Errorf("trouble: %v", err)
		}
		take(t, a, "b", 1) // a tag that exists is not rationed
		left.Store(1)
		take(t, a, "new9", 1) // nor is the refusal remembered
		tags, err := store.List(t.Context(), "new", 100)
		if err != nil || len(tags) != made+1 {
			t.Errorf("%d tags were made, %v, want %d", len(tags), err, made+1)
		}
	})
}

// Whether an unlisted tag exists is not known: names beyond the rate of lookups are refused before they reach the
// store, also where tags are made on first use.
func TestAFloodOfNewTagsReachesTheStoreAtABoundedRate(t *testing.T) {
	cfg := segment.Config{AutoStep: 50, Ration: func() error { return errors.New("too fast") }}
	followed(t, cfg, func(t *testing.T, a *allocator, store *faulty, _ *memory) {
		loads := 0
		store.OnLoad(func(_ context.Context, _ string, load loadFunc) (segment.Range, error) {
			loads++
			return load()
		})
		for i := range 5000 {
			_, err := segmenttest.Take(t.Context(), a, fmt.Sprintf("new%d", i), 1)
			if !errors.Is(err, segment.ErrRationed) && !errors.Is(err, segment.ErrTooMany) {
				t.Fatalf("tag %d: %v", i, err)
			}
		}
		if loads > 1000 {
			t.Errorf("%d loads at one moment, want 1000 at most", loads)
		}
	})
}
