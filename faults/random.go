//go:build linux

package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// randomFaults are sequences of the other faults, one or several at a time, on
// one cluster. What each may cost is not known, so callers may be refused; but
// no ID comes twice, and in the end all is well again.
func randomFaults() []fault {
	return []fault{
		{name: "random", does: "a random sequence of the faults above, up to three at a time", random: true, brief: true,
			cast: cast{servers: threeOfEach, workers: 5, proxied: true}, back: time.Minute, calm: 5 * time.Second},
		{name: "random-mysql", does: "the same with MariaDB", random: true,
			cast: cast{servers: threeOfEach, workers: 5, proxied: true, mysql: true}, back: time.Minute, calm: 5 * time.Second},
	}
}

// healing is the order in which faults that overlap are mended: a worker needs
// the others in order to start.
var healing = []area{onNATS, onNetwork, onDatabase, onClock, onWorker}

// wander plays one step after the other until the time is up.
func (s *scene) wander(d time.Duration) {
	s.rng = rand.New(rand.NewPCG(s.opt.seed, 0))
	s.from = s.load.now()
	for end := time.Now().Add(d); time.Now().Before(end); {
		s.step()
	}
	s.till = s.load.now()
}

// step plays up to three faults that overlap, or one that takes its own time.
func (s *scene) step() {
	var chosen []fault
	for n := 1 + s.rng.IntN(3); len(chosen) < n; {
		f := s.pick()
		switch {
		case f.hold == 0:
			s.say("-- %s", f.name)
			f.inject(s)
			return
		case !slices.ContainsFunc(chosen, func(c fault) bool { return c.area == f.area }):
			chosen = append(chosen, f)
		default:
			n--
		}
	}
	slices.SortFunc(chosen, func(a, b fault) int { return slices.Index(healing, b.area) - slices.Index(healing, a.area) })
	var heals []func()
	var names []string
	for _, f := range chosen {
		names = append(names, f.name)
		heals = append(heals, f.inject(s))
		s.pass(time.Duration(s.rng.Int64N(int64(min(f.hold, 8*time.Second)))))
	}
	s.say("-- %s", strings.Join(names, ", "))
	for _, heal := range slices.Backward(heals) {
		heal()
	}
	if s.rng.IntN(2) == 0 {
		s.until(startWithin, "all workers are ready", s.allReady)
	}
	s.pass(time.Duration(s.rng.Int64N(int64(2 * time.Second))))
}

// pick chooses a fault that can be mixed with others on this cast.
func (s *scene) pick() fault {
	var all []fault
	for _, f := range catalogue() {
		if f.area != "" && (f.area != onDatabase || s.cast.mysql) {
			all = append(all, f)
		}
	}
	return all[s.rng.IntN(len(all))]
}
