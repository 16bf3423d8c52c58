package kvstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/internal/stores/kvstore"
	"github.com/natsid/natsid/internal/testkit/raced"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

// A shuffler delays each call of a table and of its marks, in fake time, so that calls of several workers interleave.
type shuffler struct {
	*segmenttest.Table
	*memory
	mu  sync.Mutex
	rnd *rand.Rand
}

func (s *shuffler) delay(most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rnd.Int64N(int64(most)))
}

func (s *shuffler) wait() { time.Sleep(s.delay(time.Millisecond)) }

func (s *shuffler) Last(ctx context.Context, bucket, key string) (buckets.Entry, error) {
	s.wait()
	defer s.wait()
	return s.memory.Last(ctx, bucket, key)
}

func (s *shuffler) Publish(ctx context.Context, bucket, key string, w buckets.Write) (uint64, error) {
	s.wait()
	defer s.wait()
	return s.memory.Publish(ctx, bucket, key, w)
}

func (s *shuffler) Row(ctx context.Context, tag string) (segment.Row, error) {
	s.wait()
	defer s.wait()
	return s.Table.Row(ctx, tag)
}

func (s *shuffler) Insert(ctx context.Context, tag segment.Tag) error {
	s.wait()
	defer s.wait()
	if s.delay(10) == 0 {
		return segment.ErrNotApplied
	}
	return s.Table.Insert(ctx, tag)
}

func (s *shuffler) Update(ctx context.Context, tag string, c segment.Change) error {
	s.wait()
	defer s.wait()
	return s.Table.Update(ctx, tag, c)
}

// Calls create one tag at once, some with rules and some without, some are cut off, and others load from it.
func TestAtMostOneOfManyCallsCreatesATagAndItsRulesHoldFromTheFirstLoad(t *testing.T) {
	created, seeds := 0, raced.Or(100, 500)
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			s := &shuffler{Table: new(segmenttest.Table), memory: new(memory),
				rnd: rand.New(rand.NewPCG(seed, 0))}
			g := kvstore.New(s, kvstore.Config{
				Bucket: "marks", Table: s, Eras: func() (id era.Identity) { return id },
			})
			var mu sync.Mutex
			var by, loaded []segment.Rules
			var calls sync.WaitGroup
			for i := range 3 {
				rules := segment.Rules{Max: int64(s.delay(3)) * int64(100+i)}
				calls.Go(func() {
					time.Sleep(s.delay(4 * time.Millisecond))
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if s.delay(4) == 0 {
						time.AfterFunc(s.delay(20*time.Millisecond), cancel)
					}
					_, err := g.Create(ctx, segment.Tag{Name: "a", Step: 1, MaxID: 1, Rules: rules}, true)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						by = append(by, rules)
					}
				})
				calls.Go(func() {
					for range 20 {
						if s.delay(4) == 0 {
							// It may find a row before the tag is made.
							_ = g.Poll(t.Context(), func(segment.Listing) {})
						}
						l, err := g.Load(t.Context(), "a", 1, 0)
						mu.Lock()
						if err == nil {
							loaded = append(loaded, l.Rules)
						}
						mu.Unlock()
						time.Sleep(s.delay(2 * time.Millisecond))
					}
				})
			}
			calls.Wait()
			created += len(by)
			if len(slices.Compact(by)) > 1 { // calls without rules create the same tag
				t.Fatalf("seed %d: %d calls have created the tag: %+v", seed, len(by), by)
			}
			tag, err := g.Look(t.Context(), "a")
			if len(by) > 0 && (err != nil || tag.Disabled || tag.Rules != by[0]) {
				t.Fatalf("seed %d: the tag is %+v, %v; want it with %+v", seed, tag, err, by[0])
			}
			for _, rules := range loaded {
				if rules != tag.Rules {
					t.Fatalf("seed %d: a load had %+v, and the tag has %+v", seed, rules, tag.Rules)
				}
			}
			again, err := g.Create(t.Context(), segment.Tag{Name: "a", Step: 1, MaxID: 1}, true)
			if errors.Is(err, segment.ErrNotApplied) {
				return
			}
			if now, fault := g.Look(t.Context(), "a"); fault != nil || now.Disabled {
				t.Fatalf("seed %d: created again: %+v, %v; the tag: %+v, %v", seed, again, err, now, fault)
			}
		})
	}
	if created < seeds/4 {
		t.Errorf("only %d tags were created", created)
	}
}
