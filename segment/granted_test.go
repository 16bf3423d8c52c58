package segment_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/natsid/natsid/segment"
)

func TestEachLoadIsReportedBeforeAnIDOfItIsIssued(t *testing.T) {
	var mu sync.Mutex
	var granted []segment.Range
	cfg := segment.Config{Granted: func(tag string, l segment.Loaded) {
		mu.Lock()
		defer mu.Unlock()
		if tag != "a" {
			t.Errorf("tag %q", tag)
		}
		granted = append(granted, l.Range)
	}}
	inBubble(t, cfg, func(t *testing.T, a *allocator, _ *faulty) {
		for range 500 {
			id := take(t, a, "a", 1)[0].Start
			mu.Lock()
			within := false
			for _, g := range granted {
				within = within || g.Start <= id && id < g.End
			}
			mu.Unlock()
			if !within {
				t.Fatalf("ID %d is in none of %v", id, granted)
			}
			synctest.Wait()
		}
		if len(granted) < 5 {
			t.Errorf("only %d loads", len(granted))
		}
	})
}
