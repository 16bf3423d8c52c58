package workerid_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/testkit/schedules"
)

// TestSimulation runs fleets of workers, with the real keeper and generator, through random schedules of faults in
// virtual time. It checks the law after each fault and at each generator and ID: no tick of a worker number is ever
// held by two generators, and no position is issued twice. In the end all faults are repaired, and the fleet must serve
// again within a bound.
//
// The faults: calls are lost on the way, acknowledgements are lost, writes land up to 20 s late, or are seen by stale
// reads and then rolled back; reads are up to six changes old; heartbeats expire early or late; the question for a
// number's holder gets a wrong answer or none, and a worker answers up to 50 ms late for a number that it has just
// acquired; the registry is down, or one of its buckets; it is wiped as a whole or in part, restored from an old state,
// swapped for another and back, or created again with its content; a bystander hears all questions, so that silence
// says nothing; a worker is cut off; workers crash or stand still at any call, reading of the clock or write of the
// disk, stop cleanly, restart, lose their disk, or start with one that is torn or a copy; disks fail before or after
// the write, or hang; requests stand still between any two of their steps; clocks are set by milliseconds to years, and
// drift.
//
// Then one of them is killed, and must be back within a tick and 3 s.
//
// In a third of the schedules the registry loses its state. There, clocks differ by half the skew at most, questions
// are answered truly, no worker stands still while a bystander hears them, and operators follow docs/uniqueness.md. In
// all others the registry keeps acknowledged writes, and clocks do as they like.
//
// In some schedules every other process of a site is a program. It founds no
// deployment, and programs and workers each keep to their own numbers.
//
// A seed makes the same schedule each time. A schedule that fails is run again and prints its story.
func TestSimulation(t *testing.T) {
	simulation.Play(t, 150, "workerid")
}

func TestASeedMakesTheSameScheduleEachTime(t *testing.T) {
	simulation.Repeat(t, func(uint64) bool { return false })
}

var simulation = schedules.Simulation(func(seed uint64, s *schedules.Story) error {
	w := newWorld(seed, s)
	w.run()
	return w.breach
})

// token matches tokens and IDs of registries: the keeper does not take them from the seed.
var token = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)

func (w *world) log(format string, args ...any) {
	if w.story.Out != nil {
		what := token.ReplaceAllString(fmt.Sprintf(format, args...), "(token)")
		fmt.Fprintf(w.story.Out, "%12.6f  %s\n", time.Since(w.begin).Seconds(), what)
	}
}

// fail notes the first breach of the law.
func (w *world) fail(format string, args ...any) {
	if w.breach == nil {
		w.breach = fmt.Errorf(format, args...)
		w.log("BREACH %v", w.breach)
	}
}

// run injects faults, then repairs the world and checks that the fleet serves again.
func (w *world) run() {
	for _, m := range w.machines {
		time.Sleep(chance(w.rnd, time.Second))
		w.mu.Lock()
		m.start()
		w.mu.Unlock()
	}
	for w.still() && time.Since(w.begin) < w.span {
		time.Sleep(chance(w.rnd, w.pace))
		w.inject()
		w.mu.Lock()
		w.check()
		w.mu.Unlock()
	}
	time.Sleep(chance(w.rnd, time.Millisecond))
	w.repair()
	w.serves()
	w.back()
	w.end()
}

// end stops all workers cleanly and waits until nothing runs any more.
func (w *world) end() {
	for _, m := range w.machines {
		w.mu.Lock()
		l := m.life
		w.mu.Unlock()
		l.cancel()
		<-l.done
	}
	w.mu.Lock()
	w.check()
	for _, m := range w.machines {
		m.life.dead = true
	}
	w.mu.Unlock()
	w.wg.Wait()
	time.Sleep(time.Minute) // for writes that hang
}

func (w *world) still() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.breach == nil
}

// chance returns a time of up to about d, odd enough that no two things ever
// happen at once: no seed would repeat their order.
func chance(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(1 + r.Int64N(int64(d)))
}

func (w *world) one(n int) bool { return w.rnd.IntN(n) == 0 }
