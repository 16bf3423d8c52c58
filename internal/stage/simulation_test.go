package stage_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/internal/stage"
	"github.com/natsid/natsid/internal/testkit/raced"
)

var (
	simulated = flag.Int("sim.n", raced.Or(25, 100), "schedules to play")
	from      = flag.Int("sim.from", 1, "seed of the first")
)

// TestSimulation plays stages that are started, killed and started again, up to three at
// a time, while writes, answers and hints go astray, and the target's messages expire.
func TestSimulation(t *testing.T) {
	n := *simulated
	if testing.Short() {
		n = min(n, 50)
	}
	writes := 0
	for seed := *from; seed < *from+n; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { writes += play(t, uint64(seed)) })
		})
		if t.Failed() {
			t.Fatalf("seed %d: play it again with -args -sim.from=%d -sim.n=1", seed, seed)
		}
	}
	t.Logf("%d schedules, %d writes", n, writes)
}

func play(t *testing.T, seed uint64) (writes int) {
	w := newWorld(t, seed)
	var lives sync.WaitGroup
	for range 1 + w.rand.IntN(3) {
		lives.Go(func() {
			for range 3 {
				time.Sleep(w.upTo(5 * time.Second))
				ctx, kill := context.WithTimeout(t.Context(), w.upTo(30*time.Second))
				if err := w.stage(false).Run(ctx); err != nil {
					t.Error(err)
				}
				kill()
			}
		})
	}
	for range 20 {
		w.publish(w.draws(int(w.upTo(100)))...)
		time.Sleep(w.upTo(3 * time.Second))
		if w.chance(3) {
			w.expireCopied()
		}
	}
	lives.Wait()
	time.Sleep(time.Minute) // for what is late
	w.calmDown()
	w.publish(w.draws(30)...)
	w.publish(foreign)
	ctx, kill := context.WithTimeout(t.Context(), time.Minute)
	defer kill()
	must(t, w.stage(false).Run(ctx))
	w.judge()
	hint := w.hint
	w.first = uint64(len(w.source)) + 1 // all has been passed
	for range 2 {
		w.publish(w.draws(10)...)
		w.publish(plain)
		must(t, w.stage(true).Run(t.Context()))
		w.judge()
		w.expire()
	}
	w.hint = hint // an older one came late
	w.publish(plain)
	wantStop(t, w.stage(true).Run(t.Context()), "no hint says")
	return w.writes
}

// A message that has expired is a gap; one that was deleted by itself is none.
func TestAMessageThatLeftUnreadIsMissed(t *testing.T) {
	for first, want := range map[uint64]bool{1: false, 3: true} {
		synctest.Test(t, func(t *testing.T) {
			w := calm(t, 1, plain, plain, plain, plain, plain)
			w.skip, w.firstThen = 2, first
			err := w.stage(true).Run(t.Context())
			if _, stopped := errors.AsType[*stage.Stop](err); stopped != want {
				t.Errorf("message 3 follows message 1, and the first is %d then: %v", first, err)
			}
		})
	}
}

// A message that comes and expires while the source delivers nothing is a gap.
func TestWhatExpiresUnseenIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 1, plain)
		go func() {
			time.Sleep(20 * time.Second)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.source = append(w.source, plain, foreign)
			w.first = 3
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantStop(t, w.stage(false).Run(ctx), "messages 2 to 2")
	})
}

// A stage that another one overtakes reads on from there, though the source has lost what that one copied, and however
// often it happens.
func TestAStageThatIsOvertakenMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 1, plain, plain, plain)
		src := &overtaken{world: w, times: 3}
		must(t, w.stage(true, func(c *stage.Config) { c.Source = src }).Run(t.Context()))
		must(t, w.stage(true).Run(t.Context()))
		w.judge()
	})
}

// overtaken is a source of which another stage copies all when it is opened, so many times.
type overtaken struct {
	*world
	times int
}

func (o *overtaken) Open(ctx context.Context, after uint64) (stage.Reader, error) {
	if o.times > 0 {
		o.times--
		must(o.t, o.stage(true).Run(ctx))
		o.expireCopied()
		o.publish(plain, plain, plain)
	}
	return o.world.Open(ctx, after)
}
