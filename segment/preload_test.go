package segment_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// restarted runs f with a new allocator that preloads, over a memory store with n tags of step 100 that were created an
// hour apart from each other, the last one just now.
func restarted(t *testing.T, n int, hook segmenttest.LoadHook,
	f func(t *testing.T, a *allocator, loaded func() []string)) {
	synctest.Test(t, func(t *testing.T) {
		store := &segmenttest.Faulty{Store: new(segmenttest.Memory)}
		for i := range n {
			time.Sleep(time.Hour)
			create(t, store, segment.Tag{Name: fmt.Sprint("tag", i), Step: 100, MaxID: 1})
		}
		store.OnLoad(hook)
		var mu sync.Mutex
		var loaded []string
		a := segment.New(segment.Config{
			Store: store, Deadline: deadline, Preload: 24 * time.Hour,
			Servable: func(tag string) bool { return tag != "tag0" && tag != "tag25" },
			OnLoad: func(tag string, _ time.Duration, _ error) {
				mu.Lock()
				defer mu.Unlock()
				loaded = append(loaded, tag)
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var follower sync.WaitGroup
		follower.Go(func() { a.Follow(ctx) })
		f(t, a, func() []string { mu.Lock(); defer mu.Unlock(); return loaded })
		cancel()
		follower.Wait()
		a.Close()
	})
}

func TestRecentlyUsedTagsArePreloadedTheLatestFirst(t *testing.T) {
	restarted(t, 30, slow(10*time.Millisecond), func(t *testing.T, a *allocator, loaded func() []string) {
		time.Sleep(15 * time.Millisecond)
		synctest.Wait()
		if got := loaded(); len(got) != 4 || !inMemory(a, "tag29") || inMemory(a, "tag20") {
			t.Errorf("after one load's time: %v, want the latest four", got)
		}
		time.Sleep(time.Second)
		// 24 h back from tag29 is tag5; tag25 cannot be requested.
		if got := loaded(); len(got) != 24 || inMemory(a, "tag4") || inMemory(a, "tag25") || !inMemory(a, "tag5") {
			t.Errorf("%d loaded: %v, want one range each of 24 tags", len(got), got)
		}
		begin := time.Now()
		for i := 5; i < 30; i++ {
			if i != 25 {
				take(t, a, fmt.Sprint("tag", i), 1)
			}
		}
		if d := time.Since(begin); d > 0 {
			t.Errorf("first requests waited %v", d)
		}
	})
}

func TestAPreloadThatFailsLeavesTheTagToItsFirstRequest(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	restarted(t, 5, func(_ context.Context, _ string, load loadFunc) (segment.Range, error) {
		if broken.Load() {
			return segment.Range{}, segmenttest.ErrInjected
		}
		return load()
	}, func(t *testing.T, a *allocator, loaded func() []string) {
		time.Sleep(time.Minute)
		if got := loaded(); len(got) != 4 || a.Stats().Tags != 0 {
			t.Errorf("%d loads: %v, want one try each, and nothing kept", len(got), got)
		}
		broken.Store(false)
		take(t, a, "tag3", 1)
	})
}
