package segment_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/segmenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline is that of parked requests.
const deadline = 1500 * time.Millisecond

// inBubble runs f in fake time with an allocator over a faulty memory store
// with the tags a, b and huge, each of step 100. Unless cfg says otherwise the
// step does not grow.
func inBubble(t *testing.T, cfg segment.Config, f func(t *testing.T, a *allocator, store *faulty)) {
	synctest.Test(t, func(t *testing.T) {
		store := &segmenttest.Faulty{Store: new(segmenttest.Memory)}
		for _, tag := range []segment.Tag{
			{Name: "a", Step: 100, MaxID: 1}, {Name: "b", Step: 100, MaxID: 1},
			{Name: "huge", Step: 100, MaxID: math.MaxInt64 - 150},
		} {
			if _, err := store.Create(t.Context(), tag, false); err != nil {
				t.Fatal(err)
			}
		}
		cfg.Store, cfg.Deadline, cfg.MaxStep = store, deadline, max(1, cfg.MaxStep)
		a := segment.New(cfg)
		defer a.Close()
		f(t, a, store)
	})
}

func create(t *testing.T, s segment.Store, tag segment.Tag) {
	t.Helper()
	if _, err := s.Create(t.Context(), tag, false); err != nil {
		t.Fatal(err)
	}
}

// failing makes each load fail at once.
func failing(err error) segmenttest.LoadHook {
	return func(context.Context, string, loadFunc) (segment.Range, error) { return segment.Range{}, err }
}

// slow makes each load take d.
func slow(d time.Duration) segmenttest.LoadHook {
	return func(ctx context.Context, _ string, load loadFunc) (segment.Range, error) {
		select {
		case <-time.After(d):
			return load()
		case <-ctx.Done():
			return segment.Range{}, ctx.Err()
		}
	}
}

func take(t *testing.T, a *segment.Allocator, tag string, n int64) []segment.Range {
	t.Helper()
	ranges, err := segmenttest.Take(t.Context(), a, tag, n)
	if err != nil {
		t.Fatalf("Take(%s, %d): %v", tag, n, err)
	}
	if got := count(ranges); got != n {
		t.Fatalf("Take(%s, %d) gave %d IDs", tag, n, got)
	}
	return ranges
}

func count(ranges []segment.Range) (n int64) {
	for _, r := range ranges {
		n += r.Len()
	}
	return n
}

func TestTheNextRangeIsLoadedWhenATenthIsUsed(t *testing.T) {
	var mu sync.Mutex
	loads := 0
	cfg := segment.Config{OnLoad: func(string, time.Duration, error) { mu.Lock(); loads++; mu.Unlock() }}
	inBubble(t, cfg, func(t *testing.T, a *allocator, _ *faulty) {
		want := 1
		for i := 1; i <= 330; i++ {
			if got := take(t, a, "a", 1)[0].Start; got != int64(i) {
				t.Fatalf("ID %d, want %d", got, i)
			}
			synctest.Wait()
			if i%100 == 10 {
				want++
			}
			if mu.Lock(); loads != want {
				t.Fatalf("%d loads after %d IDs, want %d", loads, i, want)
			}
			mu.Unlock()
		}
	})
}

func TestARequestDoesNotWaitWhileARangeIsLeft(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		take(t, a, "a", 10)
		synctest.Wait() // the next range is loaded now
		store.OnLoad(slow(900 * time.Millisecond))
		start := time.Now()
		for range 19 {
			take(t, a, "a", 10)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("two ranges took %v of waiting", d)
		}
		take(t, a, "a", 10)
		if d := time.Since(start); d != 900*time.Millisecond {
			t.Errorf("the request after them waited %v, want the time of the load", d)
		}
	})
}

func TestABatchSpansRangesAndALargeOneGetsARangeThatFits(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, _ *faulty) {
		take(t, a, "a", 95)
		synctest.Wait()
		if got := take(t, a, "a", 20); len(got) != 2 || got[0].Len() != 5 {
			t.Errorf("20 IDs across the end of a range: %v", got)
		}
		if got := take(t, a, "a", 100_000); len(got) < 2 {
			t.Errorf("100,000 IDs of step 100: %v", got)
		}
	})
}

func TestWaitersAreServedInOrderOfArrivalAndARefusedOneUsesNoID(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		store.OnLoad(slow(700 * time.Millisecond))
		var order []int
		var next int64 = 1
		for i, n := range []int64{60, 30, 50, 1} {
			err := a.Park("a", n, func(r []segment.Range, err error) {
				if err != nil || count(r) != n || r[0].Start != next {
					t.Errorf("waiter %d: %v, %v, want %d IDs from %d", i, r, err, n, next)
				}
				next += n
				order = append(order, i)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(order) != 4 || order[0] != 0 || order[1] != 1 || order[2] != 2 || order[3] != 3 {
			t.Errorf("served in order %v", order)
		}
		store.OnLoad(slow(time.Hour))
		if _, err := segmenttest.Take(t.Context(), a, "a", 5000); !errors.Is(err, segment.ErrNotLoaded) {
			t.Errorf("a batch that cannot be loaded: %v", err)
		}
		if got := take(t, a, "a", 1)[0].Start; got != next {
			t.Errorf("after the refusal the next ID is %d, want %d", got, next)
		}
	})
}

func TestRequestsBehindABatchAreServedWhenTheBatchIsRefused(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		take(t, a, "a", 1)
		store.OnLoad(slow(time.Hour))
		if err := a.Park("a", 5000, func([]segment.Range, error) {}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		start := time.Now()
		take(t, a, "a", 1)
		if d := time.Since(start); d != deadline-500*time.Millisecond {
			t.Errorf("it waited %v, want until the batch is refused", d)
		}
	})
}

func TestNoRequestOvertakesOneThatWaits(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		take(t, a, "a", 1)
		synctest.Wait()
		store.OnLoad(slow(500 * time.Millisecond))
		var batch []segment.Range
		if err := a.Park("a", 150, func(r []segment.Range, _ error) { batch = r }); err != nil {
			t.Fatal(err)
		}
		if r, err := a.Next("a", 1, nil); !errors.Is(err, segment.ErrWait) {
			t.Errorf("99 IDs are left, but a batch waits for 150: %v, %v, want ErrWait", r, err)
		}
		if got := take(t, a, "a", 1); count(batch) != 150 || got[0].Start < batch[len(batch)-1].End {
			t.Errorf("after the batch %v: %v", batch, got)
		}
	})
}

func TestAParkedRequestIsRefusedWithTheCauseInTimeForAnother(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		failing := func(context.Context, string, loadFunc) (segment.Range, error) {
			return segment.Range{}, segmenttest.ErrInjected
		}
		take(t, a, "a", 1)
		take(t, a, "b", 1)
		for _, tc := range []struct {
			name, tag string
			hook      segmenttest.LoadHook
			after     time.Duration
			cause     error
		}{
			{"fails", "a", failing, 900 * time.Millisecond, segmenttest.ErrInjected},
			{"hangs", "b", slow(time.Hour), deadline, context.DeadlineExceeded},
			{"hangs after it failed", "a", slow(time.Hour), 900 * time.Millisecond, segmenttest.ErrInjected},
			{"fails after it hung", "b", failing, 900 * time.Millisecond, segmenttest.ErrInjected},
		} {
			store.OnLoad(tc.hook)
			start := time.Now()
			_, err := segmenttest.Take(t.Context(), a, tc.tag, 5000)
			if d := time.Since(start); !errors.Is(err, segment.ErrNotLoaded) || d != tc.after {
				t.Errorf("%s: %v after %v, want ErrNotLoaded after %v", tc.name, err, d, tc.after)
			}
			if !errors.Is(err, tc.cause) {
				t.Errorf("%s: %v does not name the cause, %v", tc.name, err, tc.cause)
			}
			time.Sleep(time.Minute)
		}
	})
}

// So it is for a process that stood still for as long as a load may take.
func TestALoadThatTimedOutIsTriedAgainForTheRequestsThatWaited(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		loads := 0
		store.OnLoad(func(ctx context.Context, _ string, load loadFunc) (segment.Range, error) {
			if loads++; loads == 1 {
				<-ctx.Done()
				return segment.Range{}, ctx.Err()
			}
			return load()
		})
		start := time.Now()
		take(t, a, "a", 1)
		if d := time.Since(start); d > deadline*5/6 || loads != 2 {
			t.Errorf("served after %v by load %d, want soon after the timeout of the first", d, loads)
		}
	})
}

func TestARequestWaitsUntilItsDeadlineWhileLoadsSucceed(t *testing.T) {
	inBubble(t, segment.Config{LoadTimeout: time.Hour}, func(t *testing.T, a *allocator, store *faulty) {
		store.OnLoad(slow(deadline - time.Millisecond))
		start := time.Now()
		take(t, a, "a", 1)
		if d := time.Since(start); d != deadline-time.Millisecond {
			t.Errorf("served after %v", d)
		}
	})
}

func TestAFailedLoadIsTriedAgainWithoutATightLoop(t *testing.T) {
	var tries atomic.Int32
	failing := func(context.Context, string, loadFunc) (segment.Range, error) {
		tries.Add(1)
		return segment.Range{}, segmenttest.ErrInjected
	}
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		take(t, a, "a", 1)
		store.OnLoad(failing)
		for range 80 { // served from memory, all after the first tenth
			take(t, a, "a", 1)
			time.Sleep(10 * time.Millisecond)
		}
		if n := tries.Load(); n < 3 || n > 30 {
			t.Errorf("%d loads in 0.8 s of requests", n)
		}
		store.OnLoad(nil)
		time.Sleep(time.Second)
		start := time.Now()
		take(t, a, "a", 1)
		synctest.Wait()
		take(t, a, "a", 100)
		if d := time.Since(start); d != 0 {
			t.Errorf("once the store was back the next request waited %v", d)
		}
		// While requests wait it is retried by itself.
		store.OnLoad(failing)
		time.AfterFunc(time.Second/2, func() { store.OnLoad(nil) })
		start = time.Now()
		take(t, a, "b", 1)
		if d := time.Since(start); d > 900*time.Millisecond {
			t.Errorf("a parked request got its ID %v after the store was back", d-time.Second/2)
		}
	})
}

func TestATagsTroubleIsItsOwn(t *testing.T) {
	inBubble(t, segment.Config{MaxWaiting: 10}, func(t *testing.T, a *allocator, store *faulty) {
		store.OnLoad(func(ctx context.Context, tag string, load loadFunc) (segment.Range, error) {
			if tag == "a" {
				<-ctx.Done()
				return segment.Range{}, ctx.Err()
			}
			return load()
		})
		refused := 0
		for range 12 {
			if err := a.Park("a", 1, func([]segment.Range, error) {}); errors.Is(err, segment.ErrTooMany) {
				refused++
			}
		}
		if refused != 2 || a.Stats().Waiting != 10 {
			t.Errorf("%d refused, %d wait; want 2 and 10", refused, a.Stats().Waiting)
		}
		start := time.Now()
		take(t, a, "b", 1000)
		if d := time.Since(start); d != 0 {
			t.Errorf("tag b waited %v for tag a", d)
		}
		time.Sleep(2 * time.Second)
	})
}

func TestWhatCannotBeServedIsRefusedAtOnce(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		start := time.Now()
		if _, err := segmenttest.Take(t.Context(), a, "unknown", 1); !errors.Is(err, segment.ErrUnknownTag) {
			t.Errorf("unknown tag: %v", err)
		}
		synctest.Wait()
		if n := a.Stats().Tags; n != 0 {
			t.Errorf("%d tags in memory after a request for an unknown one", n)
		}
		if _, err := segmenttest.Take(t.Context(), a, "huge", 1000); !errors.Is(err, segment.ErrExhausted) {
			t.Errorf("beyond int64: %v", err)
		}
		take(t, a, "huge", 1)
		// A request that does not fit any more is refused, one that does is served.
		errs := make(chan error, 2)
		for _, n := range []int64{1000, 20} {
			if err := a.Park("huge", n, func(_ []segment.Range, err error) { errs <- err }); err != nil {
				t.Fatal(err)
			}
		}
		if first, second := <-errs, <-errs; !errors.Is(first, segment.ErrExhausted) || second != nil {
			t.Errorf("1000 of the last IDs: %v, and 20 of them: %v", first, second)
		}
		if err := store.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := segmenttest.Take(t.Context(), a, "a", 1); !errors.Is(err, segment.ErrDisabled) {
			t.Errorf("deleted tag: %v", err)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("refusals took %v", d)
		}
	})
}

func TestCloseRefusesWaitingAndLaterRequests(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		store.OnLoad(slow(time.Hour))
		answered := make(chan error, 1)
		if err := a.Park("a", 1, func(_ []segment.Range, err error) { answered <- err }); err != nil {
			t.Fatal(err)
		}
		a.Close()
		a.Close()
		if err := <-answered; !errors.Is(err, segment.ErrClosed) {
			t.Errorf("a waiting request: %v", err)
		}
		if _, err := segmenttest.Take(t.Context(), a, "a", 1); !errors.Is(err, segment.ErrClosed) {
			t.Errorf("a later request: %v", err)
		}
	})
}

func TestTroubleIsAStoreThatFails(t *testing.T) {
	inBubble(t, segment.Config{}, func(t *testing.T, a *allocator, store *faulty) {
		_, _ = segmenttest.Take(t.Context(), a, "unknown", 1)
		if err := a.Trouble(); err != nil {
			t.Errorf("an unknown tag: %v", err)
		}
		store.OnLoad(failing(segmenttest.ErrInjected))
		_, _ = segmenttest.Take(t.Context(), a, "a", 1)
		if err := a.Trouble(); !errors.Is(err, segmenttest.ErrInjected) {
			t.Errorf("while every load fails: %v", err)
		}
		time.Sleep(time.Minute)
		if err := a.Trouble(); err != nil {
			t.Errorf("a minute later, without requests since: %v", err)
		}
		_, _ = segmenttest.Take(t.Context(), a, "a", 1)
		store.OnLoad(nil)
		take(t, a, "b", 1)
		if err := a.Trouble(); err != nil {
			t.Errorf("after a load that succeeded: %v", err)
		}
	})
}
