//go:build linux

package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// randomFaults are sequences of the other faults, one or several at a time, on one cluster. The permitted cost of a
// sequence is not known, so callers may be refused; but no ID repeats, and in the end the cluster recovers.
func randomFaults() []fault {
	return []fault{
		{
			name: "random", summary: "a random sequence of the faults above, up to three at a time",
			fleet:    fleet{servers: 3, workers: 5, proxied: true},
			recovery: time.Minute, watch: 5 * time.Second, random: true, brief: true,
		},
		{
			name: "random-mysql", summary: "the same with MariaDB",
			fleet:    fleet{servers: 3, workers: 5, proxied: true, mysql: true},
			recovery: time.Minute, watch: 5 * time.Second, random: true,
		},
	}
}

// healOrder is the order in which faults that overlap are healed: a worker needs
// the others in order to start.
var healOrder = []area{onNATS, onNetwork, onDatabase, onClock, onWorker}

// injectRandom makes one step after the other until the time is up.
func (t *trial) injectRandom(d time.Duration) {
	t.rng = rand.New(rand.NewPCG(t.opt.seed, 0))
	t.from = t.load.now()
	for end := time.Now().Add(d); time.Now().Before(end); {
		t.step()
	}
	t.till = t.load.now()
}

// step injects up to three faults that overlap, or one that takes its own time.
func (t *trial) step() {
	chosen := t.choose()
	if len(chosen) == 1 && chosen[0].lasts == 0 {
		t.logf("-- %s", chosen[0].name)
		chosen[0].inject(t)
		return
	}
	slices.SortFunc(chosen, func(a, b fault) int {
		return slices.Index(healOrder, b.area) - slices.Index(healOrder, a.area)
	})
	var heals []func()
	var names []string
	for _, f := range chosen {
		names = append(names, f.name)
		heals = append(heals, f.inject(t))
		t.sleep(time.Duration(t.rng.Int64N(int64(min(f.lasts, 8*time.Second)))))
	}
	t.logf("-- %s", strings.Join(names, ", "))
	for _, heal := range slices.Backward(heals) {
		heal()
	}
	if t.rng.IntN(2) == 0 {
		t.waitFor(startWithin, "all workers are ready", t.allReady)
	}
	t.sleep(time.Duration(t.rng.Int64N(int64(2 * time.Second))))
}

// choose chooses the faults of a step: one that takes its own time, or up to three
// of different areas.
func (t *trial) choose() (chosen []fault) {
	for n := 1 + t.rng.IntN(3); len(chosen) < n; {
		f := t.pick()
		switch {
		case f.lasts == 0:
			return []fault{f}
		case slices.ContainsFunc(chosen, func(c fault) bool { return c.area == f.area }):
			n--
		default:
			chosen = append(chosen, f)
		}
	}
	return chosen
}

// pick picks a fault that can be mixed with others on this fleet.
func (t *trial) pick() fault {
	var all []fault
	for _, f := range catalogue() {
		if f.area != "" && (f.area != onDatabase || t.fleet.mysql) {
			all = append(all, f)
		}
	}
	return all[t.rng.IntN(len(all))]
}
