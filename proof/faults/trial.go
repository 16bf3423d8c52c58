//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/testkit/overload"
	"github.com/natsid/natsid/internal/wire"
)

// A trial is one fault on a cluster of its own, under load.
type trial struct {
	*cluster
	fault fault
	rng   *rand.Rand // of a random sequence; nil otherwise

	from, till time.Duration // of the fault, since the start of the load
	recovered  time.Duration // since till, once every worker is ready and no request fails
	overload   *overload.Figures
	stamp      *stampFigures
	note       string // what the trial measured beside the load
	// explained is how many alarms, beside those of the fault, the trial's events explain.
	explained map[wire.Alarm]int
}

// A result is the result of a trial.
type result struct {
	name     string
	database string // its version; "" if there was none

	tries    int           // how often the trial was run, because the machine stalled
	took     time.Duration // of the load
	requests int64
	ids      int64
	repeats  int64
	order    verdict       // on the strict tag
	stalled  time.Duration // the longest that the load itself stood still
	disk     time.Duration // the slowest small write of this process
	bare     string        // the slowest write of the probe, and when
	leader   string        // the slowest answer of the leader of the marks
	failures map[string]int64
	gaps     [kinds]time.Duration

	calls       int64 // through package client
	failedCalls map[string]int64
	longest     time.Duration // the slowest, with or without IDs

	recovered time.Duration
	alarms    map[wire.Alarm]int
	note      string
	grants    int64             // grants audited
	overload  *overload.Figures // nil if there was none
	stamp     *stampFigures     // nil if there was no stage

	wrong      bool // a violation that a stalled machine does not explain
	violations []string
	skipped    string // why the trial could not run
	events     []string
	logs       string
}

// stallMax is how long this process may stand still, though it only waits for messages and timers; diskMax is how
// long its writes may take. Beyond them the machine stalled, and with it everything under test. A load fails after 1 s,
// two thirds of the worker's deadline, and waits for two syncs in a row: of the log of Raft, and of the stream.
const (
	stallMax = 300 * time.Millisecond
	diskMax  = 500 * time.Millisecond
)

func (r result) machineStalled() bool { return r.stalled >= stallMax || r.disk >= diskMax }

// try runs a trial, again if the machine stalled. If it stalls each time, the trial is skipped. With -again a trial
// that breaks a promise runs once more, and counts unless that run breaks none. What is wrong, as a repeated ID, counts
// in any case.
func try(ctx context.Context, opt options, dir string, once func(dir string) result) (r result) {
	var broke result // the try of -again
	for n := range 3 {
		at := filepath.Join(dir, fmt.Sprint(n))
		if err := os.Mkdir(at, 0o700); err != nil {
			return result{name: filepath.Base(dir), violations: []string{err.Error()}}
		}
		r = once(at)
		r.tries = n + 1
		final := len(r.violations) == 0 || r.wrong || ctx.Err() != nil
		if again := opt.again && n == 0; final || !again && !r.machineStalled() {
			return r
		}
		if printResult(opt, r); !r.machineStalled() {
			broke = r
		}
	}
	if len(broke.violations) > 0 {
		broke.tries = r.tries
		return broke
	}
	r.violations = nil
	r.skipped = fmt.Sprintf("the machine stalled in each of %d tries, for %v (CPU) and %v (disk) in the last",
		r.tries, r.stalled.Round(time.Millisecond), r.disk.Round(time.Millisecond))
	return r
}

func tryOnce(ctx context.Context, opt options, bins binaries, dir string, f fault) (r result) {
	c := &cluster{harness: newHarness(ctx, f.name, dir), fleet: f.fleet, opt: opt, bins: bins, secrets: newSecrets()}
	t := &trial{cluster: c, fault: f}
	slowest := watchDisk(c.harness)
	t.run(func() {
		t.start()
		stop := t.startLoad()
		defer func() { // also if the trial ends early
			stop()
			r = t.figures()
			t.judge(r)
			t.judgeLastSecond()
			r.grants = t.audit()
		}()
		t.sleep(warmUp)
		t.injectAll()
		t.waitReady()
		t.sleep(f.watchTime())
	})
	t.judgeSecrets() // including the logs of the stop
	r.name, r.disk = f.name, slowest()
	if len(t.violations) > 0 {
		t.logf("this process stood still for up to %v, and its writes took up to %v", r.stalled, r.disk)
		r.logs = t.logs()
	}
	r.wrong, r.violations, r.skipped = t.broken, t.violations, t.skipped
	r.events, r.overload, r.stamp = t.events, t.overload, t.stamp
	r.note = t.note
	return r
}

// warmUp is how long a cluster is watched before a fault.
const warmUp = 2 * time.Second

// startLoad starts the callers. The function that it returns stops them, and returns after the last answer.
func (t *trial) startLoad() (stop func()) {
	ctx, cancel := context.WithCancel(t.ctx)
	done := make(chan struct{})
	if t.fault.settle > 0 {
		t.load.settled.Store(math.MaxInt64) // injectAll sets the time
	}
	t.load.unnoticed = t.fault.unnoticed
	t.load.begin()
	t.countFrom(t.load.start)
	go func() {
		defer close(done)
		var beside sync.WaitGroup
		beside.Go(func() { t.probe.run(ctx) })
		beside.Go(func() { t.callers.run(ctx, t.opt.rate/callsPer, t.opt.batch) })
		t.load.run(ctx, t.opt.rate, t.opt.batch)
		beside.Wait()
	}()
	return func() { cancel(); <-done }
}

// injectAll injects the trial's fault, or those of a random sequence.
func (t *trial) injectAll() {
	if t.fault.random {
		t.injectRandom(t.opt.random)
		return
	}
	t.from = t.load.now()
	if t.fault.settle > 0 {
		t.load.settled.Store(int64(t.from + t.fault.settle))
	}
	heal := t.fault.inject(t)
	t.sleep(t.fault.lasts)
	t.till = t.load.now()
	t.logf("the fault ends")
	if heal != nil {
		heal()
	}
}

// waitReady waits until all workers are ready. The answers to callers are judged later.
func (t *trial) waitReady() {
	if err := t.wait(t.fault.recoveryLimit()+startWithin, "all workers are ready", t.allReady); err != nil {
		t.violation("%v", err)
		return
	}
	t.logf("all workers are ready")
	t.recovered = t.load.now() - t.till
}

// target is the worker that a fault strikes.
func (t *trial) target() *worker {
	if t.rng == nil {
		return t.workers[0]
	}
	return t.workers[t.rng.IntN(len(t.workers))]
}

// violationIfAlone records a violation if the fault is the only one: in a random sequence another may be the cause.
func (t *trial) violationIfAlone(format string, args ...any) {
	if t.rng == nil {
		t.violation(format, args...)
	} else {
		t.logf(format, args...)
	}
}
