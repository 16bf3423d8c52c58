//go:build linux

package main

import (
	"github.com/natsid/natsid/internal/wire"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// workerFaults strike a worker's process or its data directory.
func workerFaults() []fault {
	stateFile := alarms{wire.AlarmStateFile: {1, 1}}
	return []fault{
		{
			name: "worker-kill", summary: "SIGKILL of a worker, restarted after 3 s: it resumes its number",
			fleet: threeWorkers, inject: killWorker, lasts: 3 * time.Second,
			losses: []loss{lostInFlight}, area: onWorker, brief: true, single: true,
		},
		{
			name:    "worker-kill-data-lost",
			summary: "the same, and its data directory is deleted: it acquires another number",
			fleet:   threeWorkers, inject: killWorkerAndData, lasts: time.Second,
			losses: []loss{lostInFlight}, area: onWorker, single: true,
		},
		{
			name: "worker-kill-no-data", summary: "the same, restarted without a data directory",
			fleet: threeWorkers, inject: killWorkerNoData, lasts: time.Second,
			losses: []loss{lostInFlight}, single: true,
		},
		{
			name:    "worker-old-data",
			summary: "the same, and its state file is an old copy: it acquires another number",
			fleet:   threeWorkers, inject: oldData,
			losses: []loss{lostInFlightLater}, single: true,
		},
		{
			name: "workers-roll", summary: "SIGTERM of each worker in turn, restarted: no request is lost",
			fleet: threeWorkers, inject: rollWorkers, area: onWorker, brief: true, single: true,
		},
		{
			name: "worker-pause-1s", summary: "SIGSTOP of a worker for 1 s, shorter than the deadline",
			fleet: threeWorkers, inject: pauseWorker, lasts: time.Second,
			gap: 1500 * time.Millisecond, area: onWorker, brief: true, single: true,
		},
		{
			name: "worker-pause-10s", summary: "SIGSTOP for 10 s, longer than the deadline",
			fleet: threeWorkers, inject: pauseWorker, lasts: 10 * time.Second,
			losses: []loss{untilDetected, afterResume}, area: onWorker, single: true,
		},
		{
			name: "worker-pause-40s", summary: "SIGSTOP for 40 s, longer than the lease TTL",
			fleet: threeWorkers, inject: pauseWorker, lasts: 40 * time.Second,
			losses: []loss{untilDetected, afterResume}, single: true,
		},
		{
			name: "worker-pause-horizon",
			summary: "SIGSTOP until its window has ended (--horizon 20s) and another worker has acquired its number: " +
				"there are four numbers for five workers",
			fleet: fleet{
				servers: 3, workers: 3,
				flags: []string{"--horizon", "20s", "--layout", "41+0+2+0+12", "--numbers", "0-3"},
			},
			inject: pauseBeyondHorizon,
			// The scene waits for 5 s. A worker without a number retries after 2, 4, 8 and 16 s, half as long again
			// at most; the number that it acquires is used a second later.
			losses: []loss{untilDetected, afterResume}, recovery: 35 * time.Second,
			alarms: alarms{wire.AlarmNumberLost: {1, 1}, wire.AlarmNumbersExhausted: {0, 3}}, single: true,
		},
		{
			name:    "worker-copied",
			summary: "the data directory of a live worker is copied, and a second worker starts on the copy",
			fleet:   threeWorkers, inject: copyLive, lasts: 5 * time.Second,
			alarms: stateFile, single: true,
		},
		{
			name:    "worker-copied-dead",
			summary: "SIGKILL, then two workers start, one on the data directory, one on a copy of it",
			fleet:   threeWorkers, inject: copyDead, lasts: time.Second,
			losses: []loss{lostInFlight}, alarms: stateFile, single: true,
		},
	}
}

func killWorker(t *trial) func() {
	w := t.target()
	number := w.number
	t.logf("SIGKILL of %s, number %d", w.name, number)
	w.Kill()
	return func() {
		w.restart()
		if w.number != number {
			t.violationIfAlone("%s came back with number %d instead of %d", w.name, w.number, number)
		}
	}
}

func killWorkerAndData(t *trial) func() {
	w := t.target()
	number := w.number
	t.logf("SIGKILL of %s, number %d, and its data directory is removed", w.name, number)
	w.Kill()
	t.must(os.RemoveAll(w.data))
	return func() { w.restartWithout(number) }
}

func killWorkerNoData(t *trial) func() {
	w := t.target()
	number := w.number
	t.logf("SIGKILL of %s, number %d; it starts without --data", w.name, number)
	w.Kill()
	w.data = ""
	return func() { w.restartWithout(number) }
}

func oldData(t *trial) func() {
	w := t.target()
	file := filepath.Join(w.data, "worker.json")
	old, err := os.ReadFile(file)
	t.must(err)
	t.must(w.Stop(syscall.SIGTERM, stopWithin))
	w.restart()
	number := w.number
	t.logf("SIGKILL of %s, number %d, and its state file is that of the life before", w.name, number)
	w.Kill()
	t.must(os.WriteFile(file, old, 0o600))
	return func() { w.restartWithout(number) }
}

func rollWorkers(t *trial) func() {
	for _, w := range t.workers {
		t.logf("SIGTERM of %s", w.name)
		t.must(w.Stop(syscall.SIGTERM, stopWithin))
		if code := w.Cmd.ProcessState.ExitCode(); code != 0 {
			t.violation("%s ended with exit code %d", w.name, code)
		}
		w.restart()
	}
	return nil
}

func pauseWorker(t *trial) func() {
	w := t.target()
	t.logf("SIGSTOP of %s", w.name)
	t.must(w.Signal(syscall.SIGSTOP))
	return func() {
		t.logf("SIGCONT of %s", w.name)
		t.must(w.Signal(syscall.SIGCONT))
	}
}

// pauseBeyondHorizon lets another worker acquire the number of the paused one: of
// four numbers three are in use.
func pauseBeyondHorizon(t *trial) func() {
	w := t.target()
	heal := pauseWorker(t)
	var others []*worker
	for range 2 {
		o := t.addWorker(t.urls())
		o.start()
		others = append(others, o)
	}
	for _, o := range others {
		// The heartbeat of w lasts for 30 s. A worker that retries just before its end retries again after 45 s at
		// most.
		o.waitReadyWithin(90 * time.Second)
		t.logf("%s has number %d", o.name, o.number)
	}
	if !slices.ContainsFunc(others, func(o *worker) bool { return o.number == w.number }) {
		t.violation("no worker acquired number %d of %s", w.number, w.name)
	}
	return func() {
		heal()
		t.sleep(5 * time.Second) // until it has lost its number and found no free one
		t.logf("SIGTERM of %s", others[0].name)
		t.must(others[0].Stop(syscall.SIGTERM, stopWithin))
	}
}

func copyLive(t *trial) func() {
	w := t.target()
	c := t.addWorker(t.urls())
	t.logf("%s starts on a copy of the data of %s, which runs", c.name, w.name)
	c.copyData(w)
	c.restart()
	if c.number == w.number {
		t.wrong("%s and its copy both have number %d", w.name, w.number)
	}
	return nil
}

func copyDead(t *trial) func() {
	w := t.target()
	c := t.addWorker(t.urls())
	t.logf("SIGKILL of %s; it and %s, on a copy of its data, start at once", w.name, c.name)
	w.Kill()
	c.copyData(w)
	return func() {
		c.start()
		w.start()
		c.waitReady()
		w.waitReady()
		if c.number == w.number {
			t.wrong("%s and its copy both have number %d", w.name, w.number)
		}
	}
}
