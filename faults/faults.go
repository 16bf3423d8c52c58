//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/natsid/natsid/subjects"
)

// A fault is something that happens to a cluster that serves, and what it may
// cost. Whatever it is, no ID comes twice.
type fault struct {
	name string
	does string
	cast cast
	// hold is how long it lasts: from inject to what inject returns.
	hold   time.Duration
	inject func(*scene) (heal func())
	// may is all that callers may meet; without it every request is answered
	// with IDs.
	may []tolerance
	// gap is the longest that callers of a kind with no tolerance may go
	// without IDs; 1 s if 0. shortGap is that of the short tag where it is
	// tolerated; 0: any.
	gap, shortGap time.Duration
	// back is within which every worker serves everything again; 5 s if 0.
	back time.Duration
	// calm is how long the cluster is watched after the recovery; 4 s if 0.
	calm time.Duration
	// alarms are all there must be.
	alarms alarms
	area   area // of a fault that can be mixed with others; "" for the rest
	brief  bool // part of the short run
	random bool // a sequence of other faults; it has no inject
}

// alarms is how many of a kind there are, at least and at most.
type alarms map[subjects.Alarm]times

type times [2]int

func (t times) String() string {
	if t[0] == t[1] {
		return fmt.Sprint(t[0])
	}
	return fmt.Sprintf("%d to %d", t[0], t[1])
}

// An area is what a fault strikes. Two of one area are not mixed.
type area string

const (
	onWorker   area = "worker"
	onClock    area = "clock"
	onNATS     area = "nats"
	onNetwork  area = "network"
	onDatabase area = "database"
)

// A tolerance is what requests may end with: those of some kinds, asked
// between 2 s (a caller's patience) before the fault began and some time after.
type tolerance struct {
	kinds []kind
	what  []string      // codes, silent, nobody, cut
	begin time.Duration // up to this after the fault's beginning; 0: up to its end
	end   time.Duration // or up to this after its end
	most  int           // how many; 0: any number
}

func (t tolerance) covers(f failure, from, till time.Duration) bool {
	last := till + t.end
	if t.begin > 0 {
		last = from + t.begin
	}
	return slices.Contains(t.kinds, f.kind) && slices.Contains(t.what, f.what) && from-callerWaits <= f.at && f.at <= last
}

var all = []kind{snowflake, long, short}

// What a fault may cost.
var (
	// Requests that a process had taken are lost with it: core NATS delivers at
	// most once. At 400 requests a second that is a handful.
	takenAlong = tolerance{kinds: all, what: []string{silent, cutOff}, begin: 500 * time.Millisecond, most: 20}
	// NATS routes to a worker that hangs until its server misses the second
	// answer to a ping: 6 s with ping_interval 2s and ping_max 2.
	untilMissed = tolerance{kinds: all, what: []string{silent}, begin: 8 * time.Second}
	// One that goes on is asked again before it knows that its window is over.
	afterPause = tolerance{kinds: []kind{snowflake}, what: []string{"503"}, end: time.Second, most: 60}
	// The short tag cannot do without its store for more than a second or two.
	withoutStore = tolerance{kinds: []kind{short}, what: []string{"503", "429"}, end: 2 * time.Second}
	// A worker whose clock is wrong leaves within 100 ms; what it had been
	// given by then is refused.
	untilItLeaves = tolerance{kinds: []kind{snowflake}, what: []string{"503"}, begin: time.Second, most: 60}
)

var (
	threeWorkers = cast{servers: 3, workers: 3}
	proxied      = cast{servers: 3, workers: 3, proxied: true}
	onMySQL      = cast{servers: 3, workers: 3, mysql: true, proxied: true}
)

// catalogue returns all faults, in the order of the report.
func catalogue() []fault {
	return slices.Concat(workerFaults(), clockFaults(), natsFaults(), networkFaults(), diskFaults(), databaseFaults(), randomFaults())
}

func workerFaults() []fault {
	return []fault{
		{
			name: "worker-kill", does: "SIGKILL of a worker, started again after 3 s: its number comes back",
			cast: threeWorkers, hold: 3 * time.Second, inject: killWorker, may: []tolerance{takenAlong}, area: onWorker, brief: true,
		},
		{
			name: "worker-kill-data-lost", does: "the same, and its data directory is gone: it takes another number",
			cast: threeWorkers, hold: time.Second, inject: killWorkerAndData, may: []tolerance{takenAlong}, area: onWorker,
		},
		{
			name: "worker-kill-no-data", does: "the same, started without a data directory",
			cast: threeWorkers, hold: time.Second, inject: killWorkerNoData, may: []tolerance{takenAlong},
		},
		{
			name: "worker-old-data", does: "the same, and its state file is an old copy: it takes another number",
			cast: threeWorkers, inject: oldData, may: []tolerance{takenAlong},
		},
		{
			name: "workers-roll", does: "SIGTERM of each worker in turn, started again: nothing is lost",
			cast: threeWorkers, inject: rollWorkers, area: onWorker, brief: true,
		},
		{
			name: "worker-pause-1s", does: "SIGSTOP of a worker for 1 s, shorter than the deadline",
			cast: threeWorkers, hold: time.Second, inject: pauseWorker, gap: 1500 * time.Millisecond, area: onWorker, brief: true,
		},
		{
			name: "worker-pause-10s", does: "SIGSTOP for 10 s, longer than the deadline",
			cast: threeWorkers, hold: 10 * time.Second, inject: pauseWorker, may: []tolerance{untilMissed, afterPause}, area: onWorker,
		},
		{
			name: "worker-pause-40s", does: "SIGSTOP for 40 s, longer than the lease",
			cast: threeWorkers, hold: 40 * time.Second, inject: pauseWorker, may: []tolerance{untilMissed, afterPause},
		},
		{
			name: "worker-pause-horizon", does: "SIGSTOP until its window is over (--horizon 20s) and another worker has its number: there are four, and five workers",
			cast:   cast{servers: 3, workers: 3, flags: []string{"--horizon", "20s", "--layout", "41+0+2+0+12"}},
			inject: pauseBeyondHorizon, back: 15 * time.Second,
			may:    []tolerance{untilMissed, afterPause},
			alarms: alarms{subjects.AlarmNumberLost: {1, 1}, subjects.AlarmNumbersExhausted: {0, 3}},
		},
		{
			name: "worker-copied", does: "a live worker's data directory is copied, and a second worker started on the copy",
			cast: threeWorkers, hold: 5 * time.Second, inject: copyLive, alarms: alarms{subjects.AlarmStateFile: {1, 1}},
		},
		{
			name: "worker-copied-dead", does: "SIGKILL, then two workers start, one on the data directory, one on its copy",
			cast: threeWorkers, hold: time.Second, inject: copyDead, may: []tolerance{takenAlong},
			alarms: alarms{subjects.AlarmStateFile: {1, 1}},
		},
	}
}

func killWorker(s *scene) func() {
	w := s.victim()
	number := w.number
	s.say("SIGKILL of %s, number %d", w.name, number)
	w.kill()
	return func() {
		w.restart()
		if w.number != number {
			s.expected("%s came back with number %d instead of %d", w.name, w.number, number)
		}
	}
}

func killWorkerAndData(s *scene) func() {
	w := s.victim()
	number := w.number
	s.say("SIGKILL of %s, number %d, and its data directory is removed", w.name, number)
	w.kill()
	s.must(os.RemoveAll(w.data))
	return func() { w.restartWithout(number) }
}

func killWorkerNoData(s *scene) func() {
	w := s.victim()
	number := w.number
	s.say("SIGKILL of %s, number %d; it starts without --data", w.name, number)
	w.kill()
	w.data = ""
	return func() { w.restartWithout(number) }
}

// restartWithout starts a worker that must not have the number it had.
func (w *worker) restartWithout(number int) {
	w.restart()
	if w.number == number {
		w.s.wrong("%s took number %d again, though its claim was gone", w.name, number)
	}
}

func oldData(s *scene) func() {
	w := s.victim()
	file := filepath.Join(w.data, "worker.json")
	old, err := os.ReadFile(file)
	s.must(err)
	s.must(w.stop(syscall.SIGTERM, stopWithin))
	w.restart()
	number := w.number
	s.say("SIGKILL of %s, number %d, and its state file is that of the life before", w.name, number)
	w.kill()
	s.must(os.WriteFile(file, old, 0o600))
	return func() { w.restartWithout(number) }
}

func rollWorkers(s *scene) func() {
	for _, w := range s.workers {
		s.say("SIGTERM of %s", w.name)
		s.must(w.stop(syscall.SIGTERM, stopWithin))
		if code := w.cmd.ProcessState.ExitCode(); code != 0 {
			s.wrong("%s ended with exit code %d", w.name, code)
		}
		w.restart()
	}
	return nil
}

func pauseWorker(s *scene) func() {
	w := s.victim()
	s.say("SIGSTOP of %s", w.name)
	s.must(w.signal(syscall.SIGSTOP))
	return func() {
		s.say("SIGCONT of %s", w.name)
		s.must(w.signal(syscall.SIGCONT))
	}
}

// pauseBeyondHorizon lets another worker take the paused one's number: of four
// numbers three are in use.
func pauseBeyondHorizon(s *scene) func() {
	w := s.victim()
	heal := pauseWorker(s)
	var others []*worker
	for range 2 {
		o := s.newWorker(s.urls())
		o.start()
		others = append(others, o)
	}
	for _, o := range others {
		o.serve()
		s.say("%s has number %d", o.name, o.number)
	}
	if !slices.ContainsFunc(others, func(o *worker) bool { return o.number == w.number }) {
		s.wrong("nobody took number %d of %s", w.number, w.name)
	}
	return func() {
		heal()
		s.pass(5 * time.Second) // it finds that its number is another's, and that there is none for it
		s.say("SIGTERM of %s", others[0].name)
		s.must(others[0].stop(syscall.SIGTERM, stopWithin))
	}
}

func copyLive(s *scene) func() {
	w := s.victim()
	c := s.newWorker(s.urls())
	s.say("%s starts on a copy of the data of %s, which runs", c.name, w.name)
	s.must(copyDir(c.data, w.data))
	c.restart()
	if c.number == w.number {
		s.wrong("%s and its copy both have number %d", w.name, w.number)
	}
	return nil
}

func copyDead(s *scene) func() {
	w := s.victim()
	c := s.newWorker(s.urls())
	s.say("SIGKILL of %s; it and %s, on a copy of its data, start at once", w.name, c.name)
	w.kill()
	s.must(copyDir(c.data, w.data))
	return func() {
		c.start()
		w.start()
		c.serve()
		w.serve()
		if c.number == w.number {
			s.wrong("%s and its copy both have number %d", w.name, w.number)
		}
	}
}

// clockFaults set the wall clock of one worker.
func clockFaults() (list []fault) {
	for _, d := range []time.Duration{-time.Hour, -2 * time.Second, -3 * time.Millisecond, 2 * time.Second, time.Hour} {
		name, brief := signed(d), d == -2*time.Second || d == time.Hour
		f := fault{
			name: "clock" + name, does: "a worker's clock is set by " + name + " while it runs, and put right after 5 s",
			cast: threeWorkers, hold: 5 * time.Second, inject: setClock(d), area: onClock, brief: brief,
		}
		g := fault{
			name: "clock" + name + "-restart", does: "SIGKILL, a start with the clock at " + name + ", put right after 5 s",
			cast: threeWorkers, hold: 5 * time.Second, inject: setClockOverRestart(d), may: []tolerance{takenAlong}, area: onWorker,
		}
		if d.Abs() > time.Second {
			f.may = []tolerance{untilItLeaves}
			// Once for one event, until the clock is found right.
			f.alarms = alarms{subjects.AlarmClockStep: {1, 1}, subjects.AlarmClockSkew: {1, 1}}
			g.alarms = alarms{subjects.AlarmClockStep: {0, 1}, subjects.AlarmClockSkew: {1, 1}}
		}
		list = append(list, f, g)
	}
	// The one that --on-clock-step decides on.
	return append(list, fault{
		name: "clock+2s-and-back", does: "a worker's clock is set by +2s, and put right after 0.2 s: it is right, and behind the IDs of that time",
		cast: threeWorkers, hold: 200 * time.Millisecond, inject: setClock(2 * time.Second), may: []tolerance{untilItLeaves},
		alarms: alarms{subjects.AlarmClockStep: {1, 2}, subjects.AlarmClockSkew: {0, 1}, subjects.AlarmClockBehind: {0, 1}},
	})
}

// signed returns "+1h", "-3ms".
func signed(d time.Duration) string {
	text := strings.TrimSuffix(strings.TrimSuffix(d.Abs().String(), "0s"), "0m")
	return map[bool]string{true: "-", false: "+"}[d < 0] + text
}

func setClock(d time.Duration) func(*scene) func() {
	return func(s *scene) func() {
		w := s.victim()
		s.say("the clock of %s is set by %v", w.name, d)
		w.clock.set(d)
		return func() {
			s.say("and put right")
			w.clock.set(0)
		}
	}
}

func setClockOverRestart(d time.Duration) func(*scene) func() {
	return func(s *scene) func() {
		w := s.victim()
		s.say("SIGKILL of %s, and a start with the clock at %v", w.name, d)
		w.kill()
		w.clock.set(d)
		w.start()
		return func() {
			s.say("the clock is put right")
			w.clock.set(0)
			w.serve()
		}
	}
}
