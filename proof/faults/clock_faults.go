//go:build linux

package main

import (
	"github.com/natsid/natsid/internal/wire"
	"strings"
	"time"
)

// clockFaults set the wall clock of one worker.
func clockFaults() (list []fault) {
	for _, d := range []time.Duration{-time.Hour, -2 * time.Second, -3 * time.Millisecond, 2 * time.Second, time.Hour} {
		list = append(list, clockFault(d), clockRestartFault(d))
	}
	return append(list, fault{
		name: "clock+2s-and-back",
		summary: "a worker's clock is set by +2s, and corrected after 0.2 s: " +
			"it is right, and behind the IDs issued meanwhile",
		fleet: threeWorkers, inject: setClock(2 * time.Second), lasts: 200 * time.Millisecond,
		losses: []loss{untilItLeft}, single: true,
		alarms: alarms{
			wire.AlarmClockStep: {1, 2}, wire.AlarmClockSkew: {0, 1}, wire.AlarmClockBehind: {0, 1},
		},
	})
}

// isTolerated reports whether workers accept a clock that is wrong by d.
func isTolerated(d time.Duration) bool { return d.Abs() <= time.Second }

func clockFault(d time.Duration) fault {
	f := fault{
		name:    "clock" + signed(d),
		summary: "a worker's clock is set by " + signed(d) + " while it runs, and corrected after 5 s",
		fleet:   threeWorkers, inject: setClock(d), lasts: 5 * time.Second,
		single: true, area: onClock, brief: d == -2*time.Second || d == time.Hour,
	}
	if !isTolerated(d) {
		f.losses = []loss{untilItLeft}
		// Once per event, until the clock is found to be right.
		f.alarms = alarms{wire.AlarmClockStep: {1, 1}, wire.AlarmClockSkew: {1, 1}}
	}
	return f
}

func clockRestartFault(d time.Duration) fault {
	f := fault{
		name:    "clock" + signed(d) + "-restart",
		summary: "SIGKILL, and a restart with the clock at " + signed(d) + ", corrected after 5 s",
		fleet:   threeWorkers, inject: setClockOverRestart(d), lasts: 5 * time.Second,
		losses: []loss{lostInFlight}, single: true, area: onWorker,
	}
	if !isTolerated(d) {
		f.alarms = alarms{wire.AlarmClockStep: {0, 1}, wire.AlarmClockSkew: {1, 1}}
	}
	return f
}

// signed returns "+1h", "-3ms".
func signed(d time.Duration) string {
	text := strings.TrimSuffix(strings.TrimSuffix(d.Abs().String(), "0s"), "0m")
	return map[bool]string{true: "-", false: "+"}[d < 0] + text
}

func setClock(d time.Duration) func(*trial) func() {
	return func(t *trial) func() {
		w := t.target()
		t.logf("the clock of %s is set by %v", w.name, d)
		w.clock.set(d)
		return func() {
			t.logf("the clock of %s is corrected", w.name)
			w.clock.set(0)
		}
	}
}

func setClockOverRestart(d time.Duration) func(*trial) func() {
	return func(t *trial) func() {
		w := t.target()
		t.logf("SIGKILL of %s, and a restart with the clock at %v", w.name, d)
		w.Kill()
		w.clock.set(d)
		w.start()
		return func() {
			t.logf("the clock of %s is corrected", w.name)
			w.clock.set(0)
			w.waitReady()
		}
	}
}
