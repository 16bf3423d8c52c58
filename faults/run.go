//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/natsid/natsid/subjects"
)

// A result is what a scene came to.
type result struct {
	name        string
	onClockStep string
	database    string // what it calls itself; "" if there was none

	tries     int           // how often it was played, since the machine stood still
	took      time.Duration // of the load
	requests  int64
	ids       int64
	repeats   int64
	stood     time.Duration // of the load itself
	failures  map[string]int64
	gaps      [kinds]time.Duration
	recovered time.Duration
	alarms    map[subjects.Alarm]int

	trouble []string // what was not as promised
	skipped string   // why it was not played
	story   []string
	logs    string
}

// perform plays one fault and judges it. Where the machine stood still
// meanwhile, everything did, and it is played again; but an ID that came twice
// has come twice.
func perform(ctx context.Context, opt options, bins binaries, dir string, f fault) (r result) {
	for try := range 3 {
		at := filepath.Join(dir, fmt.Sprint(try))
		if err := os.Mkdir(at, 0o700); err != nil {
			return result{name: f.name, trouble: []string{err.Error()}}
		}
		r = performOnce(ctx, opt, bins, at, f)
		r.tries = try + 1
		if len(r.trouble) == 0 || r.repeats > 0 || r.stood < stoodStill {
			break
		}
	}
	return r
}

// stoodStill is how long this process may stand still, in which it does nothing
// but wait for messages and clocks.
const stoodStill = 300 * time.Millisecond

// performOnce plays one fault on a cluster of its own.
func performOnce(ctx context.Context, opt options, bins binaries, dir string, f fault) result {
	s := &scene{name: f.name, dir: dir, opt: opt, bins: bins, cast: f.cast, ctx: ctx, born: time.Now()}
	var r result
	s.play(func() {
		s.startAll()
		calls, hang := context.WithCancel(ctx)
		defer hang()
		called := s.call(calls)
		defer func() { // also if the scene ends before its time
			hang()
			<-called
			r = s.figures()
			s.judge(f, r)
			s.judgeLastSecond()
		}()
		s.pass(warmUp)
		if f.random {
			s.wander(opt.random)
		} else {
			s.strike(f)
		}
		s.recover(f.backWithin())
		s.pass(f.calmAfter())
	})
	r.name, r.onClockStep = f.name, opt.onClockStep
	r.trouble, r.skipped, r.story = s.trouble, s.skipped, s.story
	if len(s.trouble) > 0 {
		s.say("this process stood still for up to %v", r.stood)
		r.story, r.logs = s.story, s.logs()
	}
	return r
}

// warmUp is how long a cluster is watched before a fault.
const warmUp = 2 * time.Second

// call starts the load; what it returns is closed when the last answer is in.
func (s *scene) call(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	s.load.begin()
	go func() {
		defer close(done)
		s.load.run(ctx, s.opt.rate, s.opt.batch)
	}()
	return done
}

// strike does the fault, lets it last, and heals it.
func (s *scene) strike(f fault) {
	s.from = s.load.now()
	heal := f.inject(s)
	s.pass(f.hold)
	s.till = s.load.now()
	s.say("the fault ends")
	if heal != nil {
		heal()
	}
}

// recover waits until all workers say that they serve. Whether callers get what
// they ask for is seen after it.
func (s *scene) recover(within time.Duration) {
	if err := s.await(within+startWithin, "all workers are ready", s.allReady); err != nil {
		s.wrong("%v", err)
		return
	}
	s.say("all workers are ready")
	s.recovered = s.load.now() - s.till
}

func (s *scene) allReady() bool {
	return !slices.ContainsFunc(s.workers, func(w *worker) bool { return w.running() && !w.ready() })
}

func (f fault) backWithin() time.Duration {
	if f.back == 0 {
		return 5 * time.Second
	}
	return f.back
}

func (f fault) calmAfter() time.Duration {
	if f.calm == 0 {
		return 4 * time.Second
	}
	return f.calm
}

func (f fault) gapWithin() time.Duration {
	if f.gap == 0 {
		return time.Second
	}
	return f.gap
}

// figures counts what the load has met.
func (s *scene) figures() (r result) {
	l := s.load
	l.mu.Lock() // what comes now comes too late, but it may come
	defer l.mu.Unlock()
	r = result{took: l.quit, stood: l.stood, ids: l.ids, gaps: l.gaps, failures: make(map[string]int64), alarms: make(map[subjects.Alarm]int)}
	for _, n := range l.asked {
		r.requests += n
	}
	for _, f := range l.failures {
		r.failures[f.what]++
		s.recovered = max(s.recovered, f.at-s.till)
	}
	r.recovered = s.recovered
	for _, a := range l.alarms {
		r.alarms[a.Kind]++
		s.say("alarm %s of %s: %s", a.Kind, a.Instance, a.Message)
	}
	if s.db != nil {
		s.must(s.db.DB().QueryRowContext(s.ctx, "SELECT VERSION()").Scan(&r.database))
	}
	for k, of := range l.ledgers {
		rep, err := of.Close()
		s.must(err)
		r.repeats += rep.Repeats
		for _, e := range rep.Examples {
			s.wrong("%v: %v came twice", kind(k), e)
		}
	}
	return r
}

// judge says what is not as promised.
func (s *scene) judge(f fault, r result) {
	if err := s.load.err(); err != nil {
		s.wrong("%v", err)
	}
	s.judgeProcesses()
	if r.repeats > 0 {
		s.wrong("%d IDs came twice", r.repeats)
	}
	if f.random {
		s.judgeEnd()
		return
	}
	s.judgeFailures(f)
	for k, gap := range r.gaps {
		if most, bound := f.gapOf(kind(k)); bound && gap > most {
			s.wrong("%v: no IDs for %v, more than %v", kind(k), gap.Round(time.Millisecond), most)
		}
	}
	if r.recovered > f.backWithin() {
		s.wrong("all was well %v after the fault's end, later than %v", r.recovered.Round(time.Millisecond), f.backWithin())
	}
	for _, a := range subjects.Alarms() {
		if want, got := f.alarms[a.Kind], r.alarms[a.Kind]; got < want[0] || got > want[1] {
			s.wrong("%d alarms %s, want %v", got, a.Kind, want)
		}
	}
}

// gapOf returns how long callers of a kind may go without IDs. There is no such
// bound if they may be refused for as long as the fault lasts.
func (f fault) gapOf(k kind) (most time.Duration, bound bool) {
	if k == short && f.shortGap > 0 {
		return f.shortGap, true
	}
	return f.gapWithin(), !slices.ContainsFunc(f.may, func(t tolerance) bool { return t.most == 0 && t.begin == 0 && slices.Contains(t.kinds, k) })
}

// judgeProcesses says which processes have ended by themselves.
func (s *scene) judgeProcesses() {
	var all []*process
	for _, v := range s.servers {
		all = append(all, v.process)
	}
	for _, w := range s.workers {
		all = append(all, w.process)
	}
	for _, p := range all {
		if p.died() && !slices.Contains(s.mourned, p) {
			s.mourned = append(s.mourned, p)
			s.wrong("%s has ended by itself: %v", p.name, p.cmd.ProcessState)
		}
	}
}

// judgeLastSecond says what callers still missed in the last second that they
// asked. No tolerance holds there: nothing else tells a cluster that is well
// again from one that will never be.
func (s *scene) judgeLastSecond() {
	last := s.load.quit - time.Second
	var n int
	for _, x := range s.load.failed() {
		if x.at > last {
			n++
		}
	}
	if n > 0 {
		s.wrong("in the last second %d requests still got no IDs", n)
	}
}

// judgeEnd says what is not well after a random sequence.
func (s *scene) judgeEnd() {
	for _, x := range s.load.failed() {
		if x.what == "400" || x.what == "404" || x.what == "500" {
			s.wrong("a request for %v ended with %s", x.kind, x.what)
		}
	}
	if s.recovered > time.Minute {
		s.wrong("all was well only %v after the last fault", s.recovered)
	}
}

// judgeFailures says which failures no tolerance covers.
func (s *scene) judgeFailures(f fault) {
	used := make([]int, len(f.may))
	over := make(map[string][]time.Duration)
	for _, x := range s.load.failed() {
		i := slices.IndexFunc(f.may, func(t tolerance) bool { return t.covers(x, s.from, s.till) })
		if i < 0 {
			what := fmt.Sprintf("%v %s", x.kind, x.what)
			over[what] = append(over[what], x.at)
			continue
		}
		used[i]++
	}
	for _, what := range slices.Sorted(maps.Keys(over)) {
		at := over[what]
		s.wrong("%d requests ended with %s, asked %.2f s to %.2f s (the fault lasted from %.2f s to %.2f s)", len(at), what,
			slices.Min(at).Seconds(), slices.Max(at).Seconds(), s.from.Seconds(), s.till.Seconds())
	}
	for i, t := range f.may {
		if t.most > 0 && used[i] > t.most {
			s.wrong("%d requests of %v ended with %v, more than %d", used[i], t.kinds, t.what, t.most)
		}
	}
}

// victim is the worker that a fault strikes.
func (s *scene) victim() *worker {
	if s.rng == nil {
		return s.workers[0]
	}
	return s.workers[s.rng.IntN(len(s.workers))]
}
