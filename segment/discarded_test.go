package segment_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// spent counts the fates of the IDs of a tag.
type spent struct {
	mu                         sync.Mutex
	granted, issued, discarded map[int64]int
}

func newSpent() *spent {
	return &spent{granted: map[int64]int{}, issued: map[int64]int{}, discarded: map[int64]int{}}
}

func (s *spent) add(to map[int64]int, ranges ...segment.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range ranges {
		for id := r.Start; id < r.End; id++ {
			to[id]++
		}
	}
}

func (s *spent) config() segment.Config {
	return segment.Config{
		Granted:   func(_ string, l segment.Loaded) { s.add(s.granted, l.Range) },
		Discarded: func(_ string, r segment.Range) { s.add(s.discarded, r) },
	}
}

func TestWhatIsReportedAsDiscardedIsNeverIssued(t *testing.T) {
	s := newSpent()
	inBubble(t, s.config(), func(t *testing.T, a *allocator, store *faulty) {
		ctx, stop := context.WithCancel(t.Context())
		var takers sync.WaitGroup
		for range 4 {
			takers.Go(func() {
				for n := int64(1); ctx.Err() == nil; n = n%7 + 1 {
					if got, err := segmenttest.Take(ctx, a, "a", n); err == nil {
						s.add(s.issued, got...)
					}
					time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
				}
			})
		}
		for i := range 300 {
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			switch i % 5 {
			case 0, 1:
				a.Discard()
			case 2:
				tag, err := store.Update(ctx, "a", segment.Change{RaiseBy: 30})
				if err != nil {
					t.Error(err)
				}
				a.See(tag)
			case 3:
				a.SetStrict(map[string]bool{"a": i%2 == 0})
			case 4:
				a.See(segment.Tag{Name: "a", Step: 100, Disabled: true}) // by another worker, which revives it
			}
		}
		stop()
		takers.Wait()
		synctest.Wait()
		a.Discard()
		s.mu.Lock()
		defer s.mu.Unlock()
		for id := range s.granted {
			if s.granted[id] != 1 || s.issued[id]+s.discarded[id] > 1 {
				t.Fatalf("ID %d was granted %d times, issued %d times and discarded %d times",
					id, s.granted[id], s.issued[id], s.discarded[id])
			}
		}
		// What a caller had stopped waiting for is in none.
		if len(s.issued) < 1000 || len(s.discarded) < 1000 || len(s.issued)+len(s.discarded) < len(s.granted)-100 {
			t.Errorf("of %d IDs %d were issued, and %d discarded", len(s.granted), len(s.issued), len(s.discarded))
		}
	})
}

// passed is a store whose strict ranges another worker loads.
type passed struct{ segment.Store }

func (p passed) LoadStrict(
	ctx context.Context, tag string, join func() int64, floor int64,
) (segment.Loaded, error) {
	l, err := p.Store.LoadStrict(ctx, tag, join, floor)
	l.Passed = true
	return l, err
}

func TestWhatAnotherWorkerLoadedIsNotReportedAsDiscarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpent()
		cfg := s.config()
		_, store := strictly(t, true)
		cfg.Store, cfg.Deadline = passed{store}, deadline
		a := segment.New(cfg)
		defer a.Close()
		a.SetStrict(map[string]bool{"a": true})
		for range 20 {
			go func() { _, _ = segmenttest.Take(t.Context(), a, "a", 3) }()
			time.Sleep(5 * time.Millisecond)
			a.Discard()
		}
		synctest.Wait()
		if len(s.granted)+len(s.discarded) > 0 {
			t.Errorf("%d IDs are reported as granted, and %d as discarded", len(s.granted), len(s.discarded))
		}
	})
}
