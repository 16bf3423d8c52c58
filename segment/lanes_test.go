package segment

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLoadsThatGiveWayMakeThoseAfterThemPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes()
		start := time.Now()
		var all sync.WaitGroup
		for range 400 {
			all.Go(func() {
				for err := context.Canceled; err != nil && time.Since(start) < time.Minute; {
					err = l.sound.drive(t.Context(), false, time.Second, func(ctx context.Context) error {
						select {
						case <-time.After(200 * time.Millisecond):
							return nil
						case <-ctx.Done():
							return ctx.Err()
						}
					})
				}
			})
		}
		all.Wait()
		// Without giving way it takes 4 s.
		if d := time.Since(start); d > 8*time.Second {
			t.Errorf("400 loads of 0.2 s, 20 at once, took %v", d)
		}
	})
}

func TestADriverNoticesThatItsProcessRunsInSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(&newLanes().sound, 2*time.Second, func() { t.Error("it gave way, though nobody waits") })
		now := time.Now()
		for range 50 {
			now = now.Add(lookEvery + 16*time.Millisecond) // no time passes for its timer
			d.look(now)
		}
		if gaveWay, stood := d.arrive(now); gaveWay || stood < 700*time.Millisecond {
			t.Errorf("gave way: %v; it stood still for %v of %v, want 0.8 s", gaveWay, stood, 2*time.Second)
		}
	})
}
