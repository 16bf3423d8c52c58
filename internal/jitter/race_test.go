package jitter

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errLost = errors.New("another was faster")

func overtaken(err error) bool { return errors.Is(err, errLost) }

// An entry is one that lies far away, and takes long to write. A write that is not based on the last one before it is
// refused, though that can be read only once it is written.
type entry struct {
	trip, write time.Duration

	mu            sync.Mutex
	written, last uint64
	tries         int
}

// way is how long a message takes, there or back.
func (e *entry) way() { time.Sleep(e.trip/4 + UpTo(e.trip/2)) }

func (e *entry) replace() (revision uint64, err error) {
	e.way()
	e.mu.Lock()
	revision = e.written
	e.mu.Unlock()
	e.way()

	e.way()
	defer e.way()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tries++
	if e.last != revision {
		return revision, errLost
	}
	e.last++
	e.mu.Unlock()
	time.Sleep(e.write/2 + UpTo(e.write))
	e.mu.Lock()
	e.written++
	return revision, nil
}

// race has n workers replace an entry all the time for a minute, and returns how long one waited for its turn at most.
func race(t *testing.T, e *entry, n int) (longest time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waits := make([]time.Duration, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				if err := Race(ctx, overtaken, e.replace); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				waits[i] = max(waits[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	for _, w := range waits {
		longest = max(longest, w)
	}
	return longest
}

func TestOfWorkersThatRaceAllTheTimeEachGetsItsTurn(t *testing.T) {
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			e := &entry{trip: time.Millisecond / 2, write: 20 * time.Millisecond}
			if longest := race(t, e, 2); longest > 1300*time.Millisecond {
				t.Errorf("one of two waited for %v, with writes of 20 ms", longest)
			}
		})
	}
}

// The entry is not read a thousand times a second by each of many.
func TestWhoRacesWithManyPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, tries := &entry{trip: time.Millisecond / 2}, 0
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_ = Race(ctx, overtaken, func() (uint64, error) {
			tries++
			e.written, e.last = uint64(tries), 0 // others have written meanwhile
			return e.replace()
		})
		if few := 10 * time.Second / mostPause; tries > 2*int(few) {
			t.Errorf("%d tries in 10 s, want about %d", tries, few)
		}
	})
}

func TestARaceSaysHowOftenOthersWereFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, tries := errors.New("disk full"), 0
		err := Race(t.Context(), overtaken, func() (uint64, error) {
			if tries++; tries < 4 {
				return 1, errLost
			}
			return 1, other
		})
		if !errors.Is(err, other) || !strings.Contains(err.Error(), "3 times") {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = Race(ctx, overtaken, func() (uint64, error) { return 1, errLost })
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "others were faster") {
			t.Error(err)
		}
		if err := Race(ctx, overtaken, func() (uint64, error) { return 1, other }); err != other {
			t.Errorf("%v: nobody was faster", err)
		}
	})
}
