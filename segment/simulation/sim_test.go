package simulation_test

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/testkit/schedules"
)

func TestMain(m *testing.M) {
	jitter.Source = fromTheTime
	flag.Parse()
	os.Exit(m.Run())
}

// fromTheTime returns a number in [0, 1) that looks random and follows from the virtual time.
func fromTheTime() float64 {
	x := uint64(time.Now().UnixNano())
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}

// TestSimulation runs workers, with the real allocator, guard, KV store and bucket, through random schedules of faults
// in virtual time, over a simulated JetStream and a simulated table. It checks at each answer that no ID is issued
// twice and that raised and deleted tags are heeded, that requests are answered by their deadlines, and in the end,
// when all is repaired, that each worker serves each tag.
//
// A seed makes the same schedule each time: see [agenda]. A schedule that fails is run again and prints its story.
func TestSimulation(t *testing.T) {
	simulation.Play(t, 100, "segment/simulation")
}

func TestASeedMakesTheSameScheduleEachTime(t *testing.T) {
	// Where loads are passed on, of two that end at one instant any may be noted first.
	simulation.Repeat(t, func(seed uint64) bool { return seed%12 == 8 })
}

var simulation = schedules.Simulation(func(seed uint64, s *schedules.Story) error {
	w := newWorld(seed, s)
	w.live()
	return w.breach
})
